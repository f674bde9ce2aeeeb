#include "actors/model/model_file.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/glob.hpp"
#include "kernels/narrow_float.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>

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

namespace {

template <class T, class F>
void convert(std::span<const std::byte> from, std::span<float> to, F f) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T x;
    std::memcpy(&x, from.data() + i * sizeof(T), sizeof(T));
    to[i] = f(x);
  }
}

void copy_tensor(const safetensors_entry& from, std::span<float> to) {
  switch (from.dtype) {
  case safetensors_dtype::f16:
    return convert<float16>(from.bytes, to, [](float16 x) { return widened(x); });
  case safetensors_dtype::bf16:
    return convert<bfloat16>(from.bytes, to, [](bfloat16 x) { return widened(x); });
  case safetensors_dtype::f64:
    return convert<double>(from.bytes, to, [](double x) { return static_cast<float>(x); });
  default:
    return convert<float>(from.bytes, to, [](float x) { return x; });
  }
}

/// The type of a tensor in the file, if it can be converted to F32. For any other type, the result
/// is F32, so that require_tensors() reports the wrong type.
safetensors_dtype readable_type(const safetensors_file& file, const std::string& name) {
  using enum safetensors_dtype;
  const auto* found = file.find(name);
  const bool real =
    found != nullptr && (found->dtype == f16 || found->dtype == bf16 || found->dtype == f64);
  return real ? found->dtype : f32;
}

} // namespace

namespace {

/// Removes PyTorch's counters, and returns their number.
std::size_t remove_counters(safetensors_file& file) {
  return std::erase_if(file.tensors, [](const safetensors_entry& x) {
    return x.name.ends_with("num_batches_tracked") && x.dtype == safetensors_dtype::i64
      && x.shape.empty();
  });
}

bool fits_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](auto& x) { return matches_glob(x, name); });
}

/// The name that a tensor of the model has in the file.
std::string name_in_file(const tensor_choice& choice, const std::string& name) {
  for (const auto& [model, file] : choice.renames)
    if (name.starts_with(model))
      return file + name.substr(model.size());
  return name;
}

void require_effect(const layout& parameters, const std::vector<std::string>& patterns,
                    std::string_view name) {
  for (const auto& pattern : patterns)
    if (std::ranges::none_of(parameters.entries(),
                             [&](auto& x) { return matches_glob(pattern, x.name); }))
      throw input_error(std::string{name} + ": no tensor of the model fits \"" + pattern
                        + "\"; troupe check lists their names");
}

} // namespace

model_contents read_model(std::span<const std::byte> bytes, const layout& parameters,
                          std::string_view name) {
  auto file = parse_safetensors(bytes, name);
  const auto counters = remove_counters(file);
  std::vector<expected_tensor> expected;
  for (const auto& entry : parameters.entries())
    expected.push_back({entry.name, readable_type(file, entry.name), sizes_of(entry.shape)});
  require_tensors(file, expected, name);
  model_contents result{std::vector<float>(parameters.size()), info_of(file, name), counters};
  for (const auto& entry : parameters.entries())
    copy_tensor(*file.find(entry.name),
                std::span{result.weights}.subspan(entry.offset, entry.size));
  return result;
}

tensors_left read_tensors(std::span<const std::byte> bytes, const layout& parameters,
                          const tensor_choice& choice, std::span<float> weights,
                          std::string_view name) {
  require_effect(parameters, choice.only, name);
  require_effect(parameters, choice.except, name);
  auto file = parse_safetensors(bytes, name);
  tensors_left result;
  result.counters = remove_counters(file);
  safetensors_file used;
  std::vector<expected_tensor> expected;
  std::vector<std::pair<const safetensors_entry*, std::span<float>>> copies;
  for (const auto& entry : parameters.entries()) {
    const bool chosen = (choice.only.empty() || fits_any(choice.only, entry.name))
      && !fits_any(choice.except, entry.name);
    if (!chosen)
      continue;
    const auto wanted = name_in_file(choice, entry.name);
    const auto* found = file.find(wanted);
    if (found == nullptr) {
      result.missing.push_back(wanted);
      continue;
    }
    used.tensors.push_back(*found);
    expected.push_back({wanted, readable_type(file, wanted), sizes_of(entry.shape)});
    copies.emplace_back(found, weights.subspan(entry.offset, entry.size));
  }
  for (const auto& x : file.tensors)
    if (std::ranges::none_of(copies, [&](auto& copy) { return copy.first == &x; }))
      result.unused.push_back(x.name);
  if (copies.empty())
    throw input_error(
      std::string{name} + ": it has none of the tensors that the job takes, such as "
      + (result.missing.empty() ? "any" : "\"" + result.missing[0] + "\"") + "; it has "
      + (result.unused.empty() ? "none" : "\"" + result.unused[0] + "\", ...")
      + ". model.partial_weights.rename translates names");
  std::ranges::sort(used.tensors, {}, &safetensors_entry::name);
  require_tensors(used, expected, name);
  for (const auto& [from, to] : copies)
    copy_tensor(*from, to);
  result.taken = copies.size();
  return result;
}

std::filesystem::path weights_path(const std::string& given) {
  const std::filesystem::path path{given};
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path / "weights.safetensors" : path;
}

model_info read_model_info(std::span<const std::byte> bytes, std::string_view name) {
  return info_of(parse_safetensors(bytes, name), name);
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
