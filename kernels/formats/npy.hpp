#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Element types of a NumPy array that this file can read.
enum class npy_type : std::uint8_t { u8, i32, i64, f32, f64 };

/// Size of an element in bytes.
std::size_t element_size(npy_type type) noexcept;

/// NumPy's name of the type, such as "float32".
std::string_view to_string(npy_type type) noexcept;

/// A parsed .npy file: a view of the caller's bytes.
struct npy_array {
  npy_type type = npy_type::f32;
  /// The sizes of the dimensions. Elements that differ only in the last index are neighbours. Empty
  /// for a single number.
  std::vector<std::uint64_t> shape;
  /// The elements, row-major and little-endian, as many as the shape requires. They may be
  /// unaligned. The caller owns this memory.
  std::span<const std::byte> values;

  /// Number of elements.
  std::uint64_t size() const noexcept { return values.size() / element_size(type); }
  /// Element `index`, below size(). An int64 beyond 2^53 is rounded.
  double at(std::uint64_t index) const noexcept;
};

/// Reads the .npy format of NumPy, versions 1 to 3 (numpy.lib.format). A file consists of
/// "\x93NUMPY", the version, the length of the header, the header (a Python dictionary with the
/// keys descr, fortran_order and shape), and the values. The values must be float32, float64,
/// uint8, int32 or int64, little-endian, in C order. Allocates the shape (at most 64 sizes) and
/// nothing else.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name`, for:
/// - a file that is not .npy, an unknown version, or a wrong header;
/// - another type or Fortran order (the error names the NumPy call that converts the array);
/// - missing bytes (with the expected and the actual number), or additional bytes at the end.
npy_array parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Writes a .npy file, version 1. For tools and tests.
/// @param values row-major, little-endian.
/// @throws input_error if `values` do not fill `shape`.
std::vector<std::byte> write_npy(npy_type type, std::span<const std::uint64_t> shape,
                                 std::span<const std::byte> values);

} // namespace troupe
