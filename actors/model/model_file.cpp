#include "actors/model/model_file.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace troupe {

namespace {

std::vector<std::uint64_t> sizes_of(const shape& dims) {
  return {dims.extents().begin(), dims.extents().end()};
}

model_info info_of(const safetensors_file& file, std::string_view name) {
  model_info info;
  for (const auto& [key, value] : file.metadata)
    if (key != "format" && key != "job_hash" && key != "model_version")
      info.more.emplace(key, value);
  if (const auto hash = file.metadata.find("job_hash"); hash != file.metadata.end())
    info.job_hash = hash->second;
  const auto version = file.metadata.find("model_version");
  if (version == file.metadata.end())
    return info;
  const std::string& text = version->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), info.version);
  if (error != std::errc{} || end != text.data() + text.size())
    throw input_error(std::string{name}
                      + ": metadata \"model_version\": expected a number, found \""
                      + text.substr(0, 40) + "\"");
  return info;
}

} // namespace

namespace {

safetensors_file model_of(const layout& parameters, std::span<const float> weights,
                          const model_info& info) {
  if (weights.size() != parameters.size())
    throw input_error("model: " + std::to_string(weights.size())
                      + " weights do not fill a layout of " + std::to_string(parameters.size()));
  safetensors_file file;
  file.metadata = {
    {"format", "pt"}, {"job_hash", info.job_hash}, {"model_version", std::to_string(info.version)}};
  file.metadata.insert(info.more.begin(), info.more.end());
  for (const auto& entry : parameters.entries())
    file.tensors.push_back({entry.name, safetensors_dtype::f32, sizes_of(entry.shape),
                            std::as_bytes(weights.subspan(entry.offset, entry.size))});
  return file;
}

} // namespace

safetensors_pieces lay_out_model(const layout& parameters, std::span<const float> weights,
                                 const model_info& info) {
  return lay_out_safetensors(model_of(parameters, weights, info));
}

std::vector<std::byte> write_model(const layout& parameters, std::span<const float> weights,
                                   const model_info& info) {
  return write_safetensors(model_of(parameters, weights, info));
}

model_contents read_model(std::span<const std::byte> bytes, const layout& parameters,
                          std::string_view name) {
  const auto file = parse_safetensors(bytes, name);
  std::vector<expected_tensor> expected;
  for (const auto& entry : parameters.entries())
    expected.push_back({entry.name, safetensors_dtype::f32, sizes_of(entry.shape)});
  require_tensors(file, expected, name);
  model_contents result{std::vector<float>(parameters.size()), info_of(file, name)};
  for (const auto& entry : parameters.entries()) {
    const auto source = file.find(entry.name)->bytes;
    if (!source.empty())
      std::memcpy(result.weights.data() + entry.offset, source.data(), source.size());
  }
  return result;
}

void require_finite(const layout& parameters, std::span<const float> weights,
                    std::string_view name) {
  for (const auto& entry : parameters.entries()) {
    const auto values = weights.subspan(entry.offset, entry.size);
    const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (bad != values.end())
      throw input_error(std::string{name} + ": tensor \"" + entry.name + "\" "
                        + to_string(entry.shape) + " holds " + std::to_string(*bad) + " as element "
                        + std::to_string(bad - values.begin()) + "; expected finite numbers");
  }
}

} // namespace troupe
