#include "actors/model/job_file.hpp"

#include "actors/model/job_json.hpp"
#include "actors/model/text_errors.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <cstdlib>

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

namespace troupe {

namespace {

using google::protobuf::TextFormat;
using layer_list = google::protobuf::RepeatedPtrField<proto::Layer>;

/// Stores in each layer its line in the job file, so that later errors can name the line.
void set_lines(layer_list& layers, const google::protobuf::Descriptor& type,
               const TextFormat::ParseInfoTree* places) {
  const auto* field = type.FindFieldByName("layer");
  for (int i = 0; i < layers.size(); ++i) {
    auto& layer = layers[i];
    layer.clear_line();
    const auto* place = places != nullptr ? places->GetTreeForNested(field, i) : nullptr;
    if (place != nullptr)
      layer.set_line(static_cast<std::uint32_t>(places->GetLocation(field, i).line + 1));
    if (!layer.has_block())
      continue;
    const auto* block = proto::Layer::descriptor()->FindFieldByName("block");
    set_lines(*layer.mutable_block()->mutable_layer(), *proto::Block::descriptor(),
              place != nullptr ? place->GetTreeForNested(block, -1) : nullptr);
  }
}

void set_lines(proto::Job& job, const TextFormat::ParseInfoTree* places) {
  if (!job.has_model())
    return;
  const auto* model = proto::Job::descriptor()->FindFieldByName("model");
  set_lines(*job.mutable_model()->mutable_layer(), *proto::Model::descriptor(),
            places != nullptr ? places->GetTreeForNested(model, -1) : nullptr);
}

} // namespace

proto::Job parse_job(std::string_view text, std::string_view name) {
  if (text.size() > most_job_bytes)
    throw input_error(std::string{name} + ": longer than the 16 MiB accepted for a job file");
  if (is_json_job(text, name)) {
    auto job = parse_job_json(text, name);
    set_lines(job, nullptr);
    return job;
  }
  text_errors errors{name, text, *proto::Job::descriptor()};
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree places;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&places);
  parser.SetRecursionLimit(32);
  google::protobuf::io::ArrayInputStream stream{text.data(), static_cast<int>(text.size())};
  proto::Job job;
  if (!parser.Parse(&stream, &job) || !errors.text().empty())
    throw input_error(errors.text().empty() ? std::string{name} + ": not a job in text format"
                                            : errors.text());
  set_lines(job, &places);
  return job;
}

std::string job_text(const proto::Job& job) {
  auto without_lines = job;
  set_lines(without_lines, nullptr);
  std::string result;
  TextFormat::PrintToString(without_lines, &result);
  return result;
}

proto::Job load_job(const std::filesystem::path& path) {
  const auto bytes = read_file(path, most_job_bytes);
  return parse_job({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::string expand_environment(std::string_view text, std::string_view field) {
  const auto fail = [&](const std::string& what) {
    throw input_error(std::string{field} + ": \"" + std::string{text} + "\": " + what);
  };
  std::string result;
  std::string_view rest = text;
  while (true) {
    const std::size_t open = rest.find("${");
    result += rest.substr(0, open);
    if (open == std::string_view::npos)
      return result;
    const std::size_t close = rest.find('}', open);
    if (close == std::string_view::npos)
      fail("\"${\" without \"}\"");
    const std::string variable{rest.substr(open + 2, close - open - 2)};
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr)
      fail("the environment variable " + variable + " is not set; set it, or write the path out");
    result += value;
    rest = rest.substr(close + 1);
  }
}

} // namespace troupe
