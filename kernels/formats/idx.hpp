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
    values; ///< row-major, big-endian, of the length that the shape requires; the caller's memory
};

/// Reads the IDX format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, type, rank,
/// big-endian sizes, values. Allocates the shape (at most 255 sizes) and nothing else.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name`: not IDX, unknown type, rank 0, truncated (with the expected and
/// the actual number of bytes), or additional bytes at the end.
idx_array parse_idx(std::span<const std::byte> bytes, std::string_view name);

/// Like `parse_idx`, but requires u8 elements and `rank` dimensions (images: 3, labels: 1). Throws
/// input_error for another type or rank; the text names both.
idx_array parse_idx_u8(std::span<const std::byte> bytes, std::size_t rank, std::string_view name);

/// Writes an IDX file of u8 elements. For tools and tests.
/// @throws input_error if `values` do not fill `shape`, or if a dimension does not fit into the
/// format (32 bits, rank 255).
std::vector<std::byte> write_idx_u8(std::span<const std::uint64_t> shape,
                                    std::span<const std::uint8_t> values);

} // namespace troupe
