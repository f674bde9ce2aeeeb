#include "kernels/formats/safetensors.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/json_text.hpp"
#include "kernels/formats/parsing.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

namespace troupe {

static_assert(std::endian::native == std::endian::little, "tensor bytes are copied as they are");

namespace {

using json = nlohmann::json;

constexpr std::size_t prefix_bytes = 8;
constexpr std::string_view metadata_key = "__metadata__";

struct dtype_facts {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<dtype_facts, 13> facts{{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"F64", 8},
                                             {"I64", 8},
                                             {"U64", 8}}};

std::string text_of(safetensors_dtype dtype, std::span<const std::uint64_t> shape) {
  return std::string{to_string(dtype)} + " " + shape_text(shape);
}

/// Reads a header, and checks it against the data that follow it. Errors name the input.
class header_parser {
public:
  header_parser(std::span<const std::byte> data, std::string_view name)
    : data_(data), name_(name) {}

  safetensors_file parse(std::string_view text) {
    const json header = parse_json(text, std::string{name_} + ": header");
    if (!header.is_object())
      fail("the header is not a JSON object");
    safetensors_file file;
    for (const auto& [key, value] : header.items()) {
      if (key == metadata_key)
        file.metadata = metadata(value);
      else
        file.tensors.push_back(tensor(key, value));
    }
    require_full_cover(file.tensors);
    return file; // sorted by name, like the keys of the JSON object
  }

private:
  [[noreturn]] void fail(const std::string& what) const {
    throw input_error(std::string{name_} + ": " + what);
  }

  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail("tensor \"" + tensor + "\": " + what);
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    if (!value.is_object())
      fail("__metadata__ is not an object of strings");
    std::map<std::string, std::string> result;
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string())
        fail("__metadata__ \"" + key + "\" is not a string");
      result.emplace(key, entry.get<std::string>());
    }
    return result;
  }

  std::vector<std::uint64_t> sizes(const std::string& tensor, const json& object,
                                   const char* key) const {
    const auto found = object.find(key);
    const auto is_size = [](const json& n) { return n.is_number_unsigned(); };
    if (found == object.end() || !found->is_array()
        || !std::all_of(found->begin(), found->end(), is_size))
      fail(tensor, std::string{"\""} + key + "\" is missing or not a list of sizes");
    return found->get<std::vector<std::uint64_t>>();
  }

  safetensors_dtype dtype(const std::string& tensor, const json& object) const {
    const auto found = object.find("dtype");
    if (found == object.end() || !found->is_string())
      fail(tensor, "\"dtype\" is missing or not a string");
    const auto& text = found->get_ref<const std::string&>();
    const auto known = std::ranges::find(facts, std::string_view{text}, &dtype_facts::name);
    if (known == facts.end())
      fail(tensor, "unknown dtype \"" + text.substr(0, 40) + "\"");
    return static_cast<safetensors_dtype>(known - facts.begin());
  }

  safetensors_entry tensor(const std::string& key, const json& value) const {
    if (!value.is_object() || value.size() != 3)
      fail(key, "expected an object of dtype, shape and data_offsets");
    safetensors_entry result{key, dtype(key, value), sizes(key, value, "shape"), {}};
    const auto offsets = sizes(key, value, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_.size())
      fail(key,
           "data_offsets " + shape_text(offsets) + " do not lie within the "
             + std::to_string(data_.size()) + " bytes of data; is the file truncated?");
    std::uint64_t expected = 0;
    if (!byte_count(result.shape, element_size(result.dtype), expected)
        || expected != offsets[1] - offsets[0])
      fail(key,
           text_of(result.dtype, result.shape) + " does not take the "
             + std::to_string(offsets[1] - offsets[0]) + " bytes that data_offsets "
             + shape_text(offsets) + " give it");
    result.bytes = data_.subspan(offsets[0], expected);
    return result;
  }

  /// Throws input_error unless each byte of the data belongs to exactly one tensor.
  void require_full_cover(std::span<const safetensors_entry> tensors) const {
    std::vector<const safetensors_entry*> order;
    order.reserve(tensors.size());
    for (const auto& entry : tensors)
      order.push_back(&entry);
    const auto begin = [&](const safetensors_entry& e) { return e.bytes.data() - data_.data(); };
    std::ranges::sort(order, {}, [&](const safetensors_entry* e) {
      return std::pair{begin(*e), e->bytes.size()};
    });
    std::size_t end = 0;
    for (const auto* entry : order) {
      const auto first = static_cast<std::size_t>(begin(*entry));
      if (first < end)
        fail(entry->name,
             "overlaps another tensor at byte " + std::to_string(first) + " of the data");
      if (first > end)
        fail(entry->name,
             "bytes " + std::to_string(end) + " to " + std::to_string(first)
               + " of the data, before it, belong to no tensor");
      end = first + entry->bytes.size();
    }
    if (end != data_.size())
      fail(std::to_string(data_.size() - end)
           + " bytes at the end of the data belong to no tensor");
  }

  std::span<const std::byte> data_;
  std::string_view name_;
};

/// The tensors in the order in which they are written.
std::vector<const safetensors_entry*> writing_order(const safetensors_file& file) {
  std::vector<const safetensors_entry*> order;
  for (const auto& entry : file.tensors) {
    std::uint64_t expected = 0;
    if (!byte_count(entry.shape, element_size(entry.dtype), expected)
        || expected != entry.bytes.size())
      throw input_error("safetensors: tensor \"" + entry.name
                        + "\": " + std::to_string(entry.bytes.size()) + " bytes do not fill "
                        + text_of(entry.dtype, entry.shape));
    if (entry.name.empty() || entry.name == metadata_key)
      throw input_error("safetensors: a tensor cannot be named \"" + entry.name + "\"");
    order.push_back(&entry);
  }
  std::ranges::sort(order, [](const auto* a, const auto* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });
  return order;
}

std::string header_text(const safetensors_file& file,
                        std::span<const safetensors_entry* const> order) {
  auto header = nlohmann::ordered_json::object();
  if (!file.metadata.empty())
    header[std::string{metadata_key}] = file.metadata;
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const auto* entry : order) {
    if (!names.insert(entry->name).second)
      throw input_error("safetensors: two tensors are named \"" + entry->name + "\"");
    header.push_back({entry->name,
                      {{"dtype", to_string(entry->dtype)},
                       {"shape", entry->shape},
                       {"data_offsets", {offset, offset + entry->bytes.size()}}}});
    offset += entry->bytes.size();
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > max_safetensors_header)
      throw input_error("safetensors: a header of " + std::to_string(text.size())
                        + " bytes; expected at most " + std::to_string(max_safetensors_header)
                        + ": fewer tensors, or shorter names and metadata");
    return text;
  } catch (const nlohmann::json::exception&) {
    throw input_error("safetensors: a tensor name or metadata entry is not valid UTF-8");
  }
}

} // namespace

std::string_view to_string(safetensors_dtype type) noexcept {
  return facts[static_cast<std::size_t>(type)].name;
}

std::size_t element_size(safetensors_dtype type) noexcept {
  return facts[static_cast<std::size_t>(type)].size;
}

const safetensors_entry* safetensors_file::find(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &safetensors_entry::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

safetensors_file parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < prefix_bytes)
    throw input_error(std::string{name}
                      + ": truncated: a safetensors file begins with 8 bytes, "
                        "the length of its header");
  std::uint64_t length = 0;
  for (std::size_t i = prefix_bytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  const auto rest = bytes.subspan(prefix_bytes);
  if (length > max_safetensors_header || length > rest.size())
    throw input_error(std::string{name} + ": the header should be " + std::to_string(length)
                      + " bytes long; the file has " + std::to_string(rest.size())
                      + " after its length, and headers of up to "
                      + std::to_string(max_safetensors_header)
                      + " bytes are accepted; truncated, or not safetensors");
  const std::string_view text{reinterpret_cast<const char*>(rest.data()),
                              static_cast<std::size_t>(length)};
  return header_parser{rest.subspan(length), name}.parse(text);
}

safetensors_pieces lay_out_safetensors(const safetensors_file& file) {
  const auto order = writing_order(file);
  const std::string header = header_text(file, order);
  safetensors_pieces result;
  result.header.resize(prefix_bytes + header.size());
  const std::uint64_t length = header.size();
  std::memcpy(result.header.data(), &length, prefix_bytes);
  std::memcpy(result.header.data() + prefix_bytes, header.data(), header.size());
  for (const auto* entry : order)
    result.data.push_back(entry->bytes);
  return result;
}

std::vector<std::byte> write_safetensors(const safetensors_file& file) {
  auto [out, data] = lay_out_safetensors(file);
  std::size_t total = out.size();
  for (auto part : data)
    total += part.size();
  out.reserve(total);
  for (auto part : data)
    out.insert(out.end(), part.begin(), part.end());
  return std::move(out);
}

void require_tensors(const safetensors_file& file, std::span<const expected_tensor> expected,
                     std::string_view name) {
  std::string problems;
  std::set<std::string_view> known;
  for (const auto& want : expected) {
    known.insert(want.name);
    const auto* got = file.find(want.name);
    if (got == nullptr)
      problems += "\n  missing: " + want.name + ", expected " + text_of(want.dtype, want.shape);
    else if (got->dtype != want.dtype || got->shape != want.shape)
      problems += "\n  differs: " + want.name + ", expected " + text_of(want.dtype, want.shape)
        + ", found " + text_of(got->dtype, got->shape);
  }
  for (const auto& got : file.tensors)
    if (!known.contains(got.name))
      problems += "\n  extra: " + got.name + ", " + text_of(got.dtype, got.shape);
  if (!problems.empty())
    throw input_error(std::string{name} + ": the tensors do not match this model:" + problems);
}

} // namespace troupe
