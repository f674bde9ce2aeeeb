#include "apps/troupe/setup.hpp"

#include "actors/checkpoint/resume.hpp"
#include "actors/model/data_fingerprint.hpp"
#include "actors/model/data_metadata.hpp"
#include "actors/model/field_lines.hpp"
#include "actors/model/global_batch.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_source.hpp"
#include "actors/model/protocol_traits.hpp"
#include "apps/troupe/class_view.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/parameter_view.hpp"
#include "apps/troupe/stop_signals.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <random>
#include <system_error>

namespace troupe {

namespace {

/// The protocol with this name, in upper or lower case.
proto::Protocol protocol_of(const std::string& text) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  for (auto& x : builtin_traits())
    if (std::ranges::equal(text, x.name, same))
      return x.id;
  throw input_error{"--protocol=" + text + ": there is no such protocol; "
                    + suggestion(text, protocol_names())};
}

/// The names of the protocols that need no parameter servers.
std::string without_shards() {
  std::string result;
  for (auto& x : builtin_traits())
    if (!x.uses_shards())
      result += (result.empty() ? "" : ", ") + x.name;
  return result;
}

/// Throws if the directory has too little space for the weights. A new file of weights replaces the
/// old file when it is complete, so there must be space for both files.
void check_room(const std::filesystem::path& directory, std::size_t weights) {
  std::error_code unknown;
  const auto space = std::filesystem::space(directory, unknown);
  if (unknown)
    return;
  const bool there = std::filesystem::exists(directory / "weights.safetensors", unknown);
  const auto needed = weights * (there ? 1 : 2);
  if (space.available < needed)
    throw input_error{"output directory " + directory.string() + " has room for "
                      + readable_bytes(space.available) + ", and the weights take "
                      + readable_bytes(needed) + ": choose another with --out"};
}

} // namespace

proto::Job load_job(const std::string& path, const std::vector<std::string>& overrides,
                    const std::string& protocol, const std::string& out) {
  auto result = load_job(std::filesystem::path{path});
  for (auto& x : overrides)
    apply_override(result, x);
  if (!protocol.empty())
    result.set_protocol(protocol_of(protocol));
  if (!out.empty())
    result.set_output(out);
  embed_onnx(result);
  with_job_lines(path, overrides, [&] { validate(result); });
  return result;
}

job_data build_data_for(const proto::Job& job, const std::string& weights) {
  if (!job.data().has_csv())
    return build_data(job);
  // The file is mapped, because only its metadata are read here.
  const auto info = read_model_info(map_plain_or_gzip(weights).bytes, weights);
  return build_new_data(job, columns_in(info.more, weights));
}

void add_devices(proto::Job& job, const cluster_spec& cluster, const std::string& name) {
  for (auto& x : cluster.devices)
    job.add_device(x);
  if (cluster.devices.empty())
    return;
  try {
    validate(job);
  } catch (const input_error& error) {
    throw input_error{name + ": " + error.what()};
  }
}

std::string with_line_numbers(const std::string& problems, const std::string& path,
                              const std::vector<std::string>& overrides) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown))
    return problems;
  const auto bytes = read_file(path, most_job_bytes);
  return with_lines(problems, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path,
                    overrides);
}

void require_shards(const proto::Job& job, std::size_t ps) {
  if (const auto& protocol = traits_of(job); protocol.uses_shards() && ps == 0)
    throw input_error{protocol.name
                      + " needs parameter servers, and the cluster has no ps task; add one, or use "
                        "a protocol that needs none: "
                      + without_shards()};
}

void require_one_process(const proto::Job& job, bool several) {
  if (const auto& protocol = traits_of(job); several && protocol.one_process)
    throw input_error{protocol.name
                      + " needs all workers and parameter servers in one process; use `troupe "
                        "train` without --processes, or use another protocol"};
}

coordinator_setup make_coordinator_setup(const proto::Job& given, std::size_t workers,
                                         std::size_t ps, const std::optional<std::string>& resume) {
  require_shards(given, ps);
  auto job = given;
  check_workers(job, workers);
  divide_batch(job, workers);
  coordinator_setup result;
  {
    const stop_signals_end_process until_data_is_read;
    result.data = build_training_data(job);
    result.data.fingerprint = fingerprint_of(result.data);
  }
  result.context = make_job_context(job, shape_of(*result.data.train), {}, metadata_of(result.data),
                                    result.data.fingerprint);
  result.output = expand_environment(job.output(), "output");
  result.files = std::make_shared<disk_storage>();
  try {
    open_output(result, resume);
    if (!result.output.empty())
      check_room(result.output, result.context->parameters().size() * sizeof(float));
  } catch (const std::system_error& error) {
    throw input_error{std::string{error.what()} + ": choose another with --out"};
  }
  for (const auto& text : view_classes(result.data, job.data()).warnings)
    result.notices.push_back("data: " + text);
  if (result.data.test == result.data.train)
    result.notices.push_back("there are no test records: the test loss and the test accuracy are "
                             "those of the training records. "
                             + std::string{job.data().has_digits() ? "data.digits.test makes some"
                                                                   : "data.split.test sets some "
                                                                     "aside"});
  for (const auto& text : unused_settings(job.optimizer()))
    result.notices.push_back("optimizer: " + text);
  if (const auto frozen = frozen_lines(*result.context); !frozen.empty())
    result.notices.insert(result.notices.begin(),
                          "frozen: " + frozen[0] + "; troupe check says which");
  if (job.solver() != proto::EXACT)
    result.notices.insert(result.notices.begin(), "batch: " + batch_text(*result.context, workers));
  return result;
}

std::uint64_t make_incarnation() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) ^ source();
}

} // namespace troupe
