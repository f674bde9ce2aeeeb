#include "apps/troupe/setup.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cctype>
#include <random>
#include <system_error>

namespace troupe {

proto::Job load_job(const std::string& path, const std::vector<std::string>& overrides,
                    const std::string& protocol, const std::string& out) {
  auto result = load_job(std::filesystem::path{path});
  for (auto& x : overrides)
    apply_override(result, x);
  if (!protocol.empty()) {
    auto name = protocol;
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    apply_override(result, "protocol=" + name);
  }
  if (!out.empty())
    result.set_output(out);
  validate(result);
  return result;
}

coordinator_setup make_coordinator_setup(const proto::Job& job, std::size_t ps) {
  if (job.protocol() != proto::RING && ps == 0)
    throw input_error{protocol_name(job.protocol())
                      + " needs parameter servers, and the cluster has no ps task (or use RING)"};
  coordinator_setup result;
  result.data = build_data(job);
  result.context = make_job_context(job, shape_of(*result.data.train));
  result.output = expand_environment(job.output(), "output");
  result.files = std::make_shared<disk_storage>();
  if (!result.output.empty()) {
    try {
      result.files->prepare(result.output);
    } catch (const std::system_error& error) {
      throw input_error{std::string{error.what()} + ": choose another with --out"};
    }
  }
  return result;
}

std::uint64_t make_incarnation() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) ^ source();
}

} // namespace troupe
