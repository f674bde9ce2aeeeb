#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// Element types of an IDX file, with the codes of the format. Multi-byte elements are big-endian.
enum class idx_type : std::uint8_t {
  u8 = 0x08,
  i8 = 0x09,
  i16 = 0x0b,
  i32 = 0x0c,
  f32 = 0x0d,
  f64 = 0x0e
};

/// Size of an element in bytes.
std::size_t element_size(idx_type type) noexcept;

/// A parsed IDX file: a view of the caller's bytes.
struct idx_array {
  idx_type type = idx_type::u8;
  std::vector<std::uint64_t>
    shape; ///< slowest dimension first; (records, rows, columns) for images
  std::span<const std::byte>
    values; ///< row-major, big-endian; as long as the shape says; the caller's memory
};

/// Reads the IDX format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, type, rank,
/// big-endian sizes, values. Allocates the shape (at most 255 sizes) and nothing else.
/// @param name what errors call the input, usually the path.
/// @throws input_error naming `name`: not IDX, unknown type, rank 0, truncated (says how many bytes
/// were expected and how many are there), or bytes left over.
idx_array parse_idx(std::span<const std::byte> bytes, std::string_view name);

/// `parse_idx`, which also requires u8 elements and `rank` dimensions (images: 3, labels: 1), and
/// otherwise says what was found.
idx_array parse_idx_u8(std::span<const std::byte> bytes, std::size_t rank, std::string_view name);

/// An IDX file of u8 elements. For tools and tests.
/// @throws input_error when `values` do not fill `shape`, or a dimension does not fit the format
/// (32 bits, rank 255).
std::vector<std::byte> write_idx_u8(std::span<const std::uint64_t> shape,
                                    std::span<const std::uint8_t> values);

} // namespace troupe
