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

constexpr std::uint64_t max_job_bytes = std::uint64_t{16} << 20;

} // namespace

proto::Job parse_job(std::string_view text, std::string_view name) {
  if (text.size() > max_job_bytes)
    throw input_error(std::string{name} + ": longer than the 16 MiB accepted for a job file");
  if (is_json_job(text, name))
    return parse_job_json(text, name);
  text_errors errors{name};
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(32);
  google::protobuf::io::ArrayInputStream stream{text.data(), static_cast<int>(text.size())};
  proto::Job job;
  if (!parser.Parse(&stream, &job) || !errors.text().empty())
    throw input_error(errors.text().empty() ? std::string{name} + ": not a job in text format"
                                            : errors.text());
  return job;
}

std::string job_text(const proto::Job& job) {
  std::string result;
  google::protobuf::TextFormat::PrintToString(job, &result);
  return result;
}

proto::Job load_job(const std::filesystem::path& path) {
  const auto bytes = read_file(path, max_job_bytes);
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

std::string layer_name(const proto::Model& model, int index) {
  const auto& layer = model.layer(index);
  if (layer.has_name())
    return layer.name();
  const auto* kind = layer.GetReflection()->GetOneofFieldDescriptor(
    layer, proto::Layer::descriptor()->FindOneofByName("kind"));
  return (kind != nullptr ? kind->name() : "layer") + "_" + std::to_string(index + 1);
}

} // namespace troupe
