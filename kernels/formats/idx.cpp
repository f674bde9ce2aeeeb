#include "kernels/formats/idx.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/parsing.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace troupe {

namespace {

bool is_known(std::uint8_t code) noexcept {
  return code == 0x08 || code == 0x09 || (code >= 0x0b && code <= 0x0e);
}

} // namespace

std::size_t element_size(idx_type type) noexcept {
  switch (type) {
  case idx_type::u8:
  case idx_type::i8:
    return 1;
  case idx_type::i16:
    return 2;
  case idx_type::i32:
  case idx_type::f32:
    return 4;
  case idx_type::f64:
    return 8;
  }
  return 1;
}

idx_array parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint8_t>(bytes[i]); };
  if (bytes.size() < 4)
    reject(name,
           "truncated: an IDX file has at least 4 bytes, this one " + std::to_string(bytes.size()));
  if (at(0) != 0 || at(1) != 0 || !is_known(at(2)))
    reject(name,
           "not an IDX file (it should begin with 00 00, a type 08, 09 or 0b to 0e, and the "
           "number of dimensions)");
  const std::size_t rank = at(3);
  if (rank == 0)
    reject(name, "an IDX array without dimensions; expected at least one");
  const std::size_t header = 4 + 4 * rank;
  if (bytes.size() < header)
    reject(name,
           "truncated: the header of " + std::to_string(rank) + " dimensions takes "
             + std::to_string(header) + " bytes, the file has " + std::to_string(bytes.size()));
  idx_array result;
  result.type = static_cast<idx_type>(at(2));
  result.shape.reserve(rank);
  for (std::size_t i = 4; i < header; i += 4)
    result.shape.push_back(std::uint64_t{at(i)} << 24 | std::uint64_t{at(i + 1)} << 16
                           | std::uint64_t{at(i + 2)} << 8 | at(i + 3));
  std::uint64_t expected = 0;
  if (!byte_count(result.shape, element_size(result.type), expected))
    reject(name, "shape " + shape_text(result.shape) + " is larger than any file");
  const std::uint64_t there = bytes.size() - header;
  if (there != expected)
    reject(name,
           std::string{there < expected ? "truncated" : "too long"} + ": shape "
             + shape_text(result.shape) + " takes " + std::to_string(expected)
             + " bytes of values, the file has " + std::to_string(there));
  result.values = bytes.subspan(header);
  return result;
}

idx_array parse_idx_u8(std::span<const std::byte> bytes, std::size_t rank, std::string_view name) {
  auto result = parse_idx(bytes, name);
  if (result.type != idx_type::u8)
    reject(name,
           "expected unsigned bytes (IDX type 8), found IDX type "
             + std::to_string(static_cast<unsigned>(result.type)));
  if (result.shape.size() != rank)
    reject(name,
           "expected " + std::to_string(rank) + " dimension" + (rank == 1 ? "" : "s")
             + (rank == 1     ? " (labels)"
                  : rank == 3 ? " (images, rows, columns)"
                              : "")
             + ", found shape " + shape_text(result.shape));
  return result;
}

std::vector<std::byte> write_idx_u8(std::span<const std::uint64_t> shape,
                                    std::span<const std::uint8_t> values) {
  std::uint64_t expected = 0;
  const auto fits = [](std::uint64_t n) { return n <= std::numeric_limits<std::uint32_t>::max(); };
  if (shape.empty() || shape.size() > 255 || !std::ranges::all_of(shape, fits)
      || !byte_count(shape, 1, expected) || expected != values.size())
    throw input_error("IDX: " + std::to_string(values.size()) + " values do not fill shape "
                      + shape_text(shape));
  std::vector<std::byte> out{std::byte{0}, std::byte{0}, std::byte{0x08},
                             static_cast<std::byte>(shape.size())};
  out.reserve(4 + 4 * shape.size() + values.size());
  for (const auto size : shape)
    for (int shift = 24; shift >= 0; shift -= 8)
      out.push_back(static_cast<std::byte>(size >> shift & 0xff));
  const auto data = std::as_bytes(values);
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

} // namespace troupe
