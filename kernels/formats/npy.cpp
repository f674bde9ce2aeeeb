#include "kernels/formats/npy.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/parsing.hpp"
#include "kernels/formats/printable.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace troupe {

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_rank = 64; // NumPy's own bound

struct type_code {
  npy_type type;
  std::string_view code;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<type_code, 5> types{{{npy_type::u8, "|u1", "uint8", 1},
                                          {npy_type::i32, "<i4", "int32", 4},
                                          {npy_type::i64, "<i8", "int64", 8},
                                          {npy_type::f32, "<f4", "float32", 4},
                                          {npy_type::f64, "<f8", "float64", 8}}};

const type_code& entry_of(npy_type type) noexcept {
  return types[static_cast<std::size_t>(type)];
}

struct header {
  std::string_view descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

/// Reads the dictionary of a header. It accepts only the syntax that NumPy writes: strings without
/// escapes, True and False, tuples of whole numbers.
class header_reader {
public:
  header_reader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  header read() {
    header result;
    expect('{');
    while (!accept('}')) {
      const auto key = string();
      expect(':');
      if (key == "descr" && result.descr.empty())
        result.descr = type();
      else if (key == "fortran_order" && !result.fortran_order)
        result.fortran_order = boolean();
      else if (key == "shape" && !result.shape)
        result.shape = shape();
      else
        bad("a key \"" + excerpt(key) + "\" that is unknown or appears twice");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (position_ != text_.size())
      bad("text after the dictionary");
    if (result.descr.empty() || !result.fortran_order || !result.shape)
      bad("a key that is missing");
    return result;
  }

private:
  [[noreturn]] void bad(const std::string& what) const {
    reject(name_,
           "the .npy header has " + what + " near its character " + std::to_string(position_)
             + "; expected {'descr': ..., 'fortran_order': ..., 'shape': (...)}");
  }

  void skip_blanks() {
    position_ = std::min(text_.find_first_not_of(" \n\t", position_), text_.size());
  }

  bool accept(char c) {
    skip_blanks();
    const bool there = position_ < text_.size() && text_[position_] == c;
    position_ += there ? 1 : 0;
    return there;
  }

  void expect(char c) {
    if (!accept(c))
      bad(std::string{"no \""} + c + "\"");
  }

  std::string_view string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"' && !accept('"'))
      bad("no string");
    const std::size_t end = text_.find(quote, position_);
    if (end == std::string_view::npos)
      bad("an open quote");
    const auto result = text_.substr(position_, end - position_);
    position_ = end + 1;
    return result;
  }

  std::string_view type() {
    if (accept('['))
      reject(
        name_,
        "a structured array (its elements have fields); expected float32, float64, uint8, int32 "
        "or int64: save one field of it");
    const auto result = string();
    if (result.empty())
      bad("an empty type");
    return result;
  }

  bool boolean() {
    skip_blanks();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(position_).starts_with(word)) {
        position_ += word.size();
        return word == "True";
      }
    bad("neither True nor False");
  }

  std::vector<std::uint64_t> shape() {
    std::vector<std::uint64_t> result;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      std::uint64_t size = 0;
      const char* first = text_.data() + position_;
      const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), size);
      if (error == std::errc::result_out_of_range)
        bad("a dimension larger than any file");
      if (error != std::errc{})
        bad("a dimension that is no whole number");
      if (result.size() == max_rank)
        bad("more than " + std::to_string(max_rank) + " dimensions");
      result.push_back(size);
      position_ += static_cast<std::size_t>(end - first);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return result;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t position_ = 0;
};

npy_type type_of(std::string_view code, std::string_view name) {
  for (const auto& known : types)
    if (code == known.code || (known.size == 1 && code.size() == 3 && code.substr(1) == "u1"))
      return known.type;
  const bool texts = code.find_first_of("USO") != std::string_view::npos;
  reject(name,
         "elements of type \"" + excerpt(code)
           + "\"; expected float32, float64, uint8, int32 or int64, little-endian. "
           + (texts ? "Number texts: save numpy.unique(x, return_inverse=True)[1]"
                    : "Save x.astype(\"<f4\") for numbers, x.astype(\"<i4\") for classes"));
}

/// Position and length of the header's text.
std::pair<std::size_t, std::size_t> find_header(std::span<const std::byte> bytes,
                                                std::string_view name) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const bool known =
    bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  if (!known)
    reject(name, "not a .npy file (it should begin with the bytes 93 N U M P Y)");
  const auto truncated = [&](std::size_t needed) {
    reject(name,
           "truncated: the header takes " + std::to_string(needed) + " bytes, the file has "
             + std::to_string(bytes.size()));
  };
  if (bytes.size() < 10)
    truncated(10);
  const auto version = at(6);
  if (version < 1 || version > 3)
    reject(name, "version " + std::to_string(version) + " of the .npy format; expected 1 to 3");
  const std::size_t begin = version == 1 ? 10 : 12;
  if (bytes.size() < begin)
    truncated(begin);
  std::size_t length = at(8) | at(9) << 8;
  if (version > 1)
    length |= std::size_t{at(10)} << 16 | std::size_t{at(11)} << 24;
  if (bytes.size() - begin < length)
    truncated(begin + length);
  return {begin, length};
}

template <class T>
double load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<double>(value);
}

} // namespace

std::size_t element_size(npy_type type) noexcept {
  return entry_of(type).size;
}

std::string_view to_string(npy_type type) noexcept {
  return entry_of(type).name;
}

double npy_array::at(std::uint64_t index) const noexcept {
  const auto* from = values.data() + index * element_size(type);
  switch (type) {
  case npy_type::u8:
    return load<std::uint8_t>(from);
  case npy_type::i32:
    return load<std::int32_t>(from);
  case npy_type::i64:
    return load<std::int64_t>(from);
  case npy_type::f32:
    return load<float>(from);
  case npy_type::f64:
    return load<double>(from);
  }
  return 0;
}

npy_array parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const auto [begin, length] = find_header(bytes, name);
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()) + begin, length};
  auto head = header_reader{text, name}.read();
  npy_array result;
  result.type = type_of(head.descr, name);
  result.shape = std::move(*head.shape);
  if (*head.fortran_order && result.shape.size() > 1)
    reject(name,
           "in Fortran order (columns first); expected C order: save numpy.ascontiguousarray(x)");
  std::uint64_t expected = 0;
  if (!byte_count(result.shape, element_size(result.type), expected))
    reject(name, "shape " + shape_text(result.shape) + " is larger than any file");
  result.values = bytes.subspan(begin + length);
  const std::uint64_t there = result.values.size();
  if (there != expected)
    reject(name,
           std::string{there < expected ? "truncated" : "too long"} + ": shape "
             + shape_text(result.shape) + " of " + std::string{to_string(result.type)} + " takes "
             + std::to_string(expected) + " bytes of values, the file has "
             + std::to_string(there));
  return result;
}

std::vector<std::byte> write_npy(npy_type type, std::span<const std::uint64_t> shape,
                                 std::span<const std::byte> values) {
  std::uint64_t expected = 0;
  if (!byte_count(shape, element_size(type), expected) || expected != values.size())
    throw input_error(".npy: " + std::to_string(values.size()) + " bytes do not fill shape "
                      + shape_text(shape));
  std::string head =
    "{'descr': '" + std::string{entry_of(type).code} + "', 'fortran_order': False, 'shape': (";
  for (const auto size : shape)
    head += std::to_string(size) + ",";
  head += "), }";
  // The values begin at a multiple of 64, as NumPy writes them.
  head.append(63 - (10 + head.size()) % 64, ' ');
  head += '\n';
  std::string start{magic};
  start +=
    {'\x01', '\x00', static_cast<char>(head.size() & 0xff), static_cast<char>(head.size() >> 8)};
  start += head;
  const auto first = as_byte_span(start);
  std::vector<std::byte> result{first.begin(), first.end()};
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

} // namespace troupe
