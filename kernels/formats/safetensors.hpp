#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Largest size of a header in bytes. The reference implementation has the same limit.
inline constexpr std::size_t max_safetensors_header = 100'000'000;

/// Element types of the format; all little-endian.
enum class safetensors_dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64
};

/// The format's name of a type, such as "F32".
std::string_view to_string(safetensors_dtype type) noexcept;

/// Size of an element in bytes.
std::size_t element_size(safetensors_dtype type) noexcept;

/// One tensor of a file, with a view of its bytes.
struct safetensors_entry {
  std::string name;
  safetensors_dtype dtype = safetensors_dtype::f32;
  std::vector<std::uint64_t> shape; ///< empty: a scalar
  std::span<const std::byte>
    bytes; ///< row-major, product(shape) * element_size(dtype) bytes; the caller's memory
};

/// A whole file. `tensors` is sorted by name after parsing.
struct safetensors_file {
  std::map<std::string, std::string> metadata; ///< the header's entry "__metadata__"
  std::vector<safetensors_entry> tensors;

  /// The tensor with this name, or nullptr. Tensors must be sorted by name.
  const safetensors_entry* find(std::string_view name) const noexcept;
};

/// A tensor that a reader needs.
struct expected_tensor {
  std::string name;
  safetensors_dtype dtype = safetensors_dtype::f32;
  std::vector<std::uint64_t> shape;
};

/// Reads the safetensors format (https://github.com/huggingface/safetensors): u64 header length,
/// JSON header, data.
///
/// The result refers to `bytes`. The bytes of a tensor may be unaligned, so copy them instead of
/// casting the pointer. Memory: some tens of times the length of the header. This length is
/// compared with the size of the input before it is used.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name` and the tensor, for:
/// - a header that is longer than the input or than max_safetensors_header, is not JSON, or is
/// nested too deeply;
/// - an unknown dtype, sizes that overflow, or a name that appears twice;
/// - offsets that are outside the data, in the wrong order, or do not match the shape;
/// - tensors that overlap, or bytes that belong to no tensor.
safetensors_file parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

/// Writes the safetensors format like the reference implementation: header keys are sorted by
/// (descending alignment, name), and data has the same order without gaps. The header is padded
/// with spaces so that the data starts at a multiple of 8. The same content gives the same bytes.
/// @throws input_error that names the tensor, if its bytes do not match its shape, or its name is
/// empty, reserved or appears twice. Also input_error if a name or the metadata is not valid UTF-8,
/// or if the header is longer than max_safetensors_header.
std::vector<std::byte> write_safetensors(const safetensors_file& file);

/// The bytes of a file in pieces, to be written one after the other. The data of the tensors is not
/// copied.
struct safetensors_pieces {
  std::vector<std::byte> header;
  /// The tensors' bytes in the order of the file; the caller's memory.
  std::vector<std::span<const std::byte>> data;
};

/// Like `write_safetensors`, but returns the file in pieces.
/// @throws input_error like write_safetensors.
safetensors_pieces lay_out_safetensors(const safetensors_file& file);

/// Compares the tensors of a file with the tensors that a reader needs.
/// @param name the name of the file in the error, usually its path.
/// @throws input_error with one line for *each* tensor that is missing, unexpected, or of another
/// shape or dtype.
void require_tensors(const safetensors_file& file, std::span<const expected_tensor> expected,
                     std::string_view name);

} // namespace troupe
