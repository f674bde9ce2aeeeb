#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

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
/// The result refers to `bytes`. Memory: some tens of times the header's length, which is first
/// compared with the input. The bytes of a tensor may be unaligned, so copy them instead of
/// casting.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name` and the tensor: header longer than the input or than 16 MiB, not
/// JSON, nested too deeply, unknown dtype, sizes that overflow, offsets outside the data, in the
/// wrong order or not matching the shape, tensors that overlap, bytes that belong to no tensor, or
/// a name that appears twice.
safetensors_file parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

/// Writes the format like the reference implementation: header keys sorted by (descending
/// alignment, name), data in the same order without gaps, header padded with spaces so that the
/// data starts at a multiple of 8. The same content gives the same bytes.
/// @throws input_error that names the tensor: its bytes do not match its shape, its name is empty
/// or reserved, or a name appears twice. Also input_error if a name or the metadata is not valid
/// UTF-8.
std::vector<std::byte> write_safetensors(const safetensors_file& file);

/// The bytes of a file in pieces, to be written one after the other. Nothing is copied.
struct safetensors_pieces {
  std::vector<std::byte> header;
  /// The tensors' bytes in the order of the file; the caller's memory.
  std::vector<std::span<const std::byte>> data;
};

/// The output of `write_safetensors` in pieces.
/// @throws input_error like write_safetensors.
safetensors_pieces lay_out_safetensors(const safetensors_file& file);

/// Compares a file with the tensors that are needed.
/// @param name the name of the file in the error, usually its path.
/// @throws input_error with one line for *each* tensor that is missing, unexpected, or of another
/// shape or dtype.
void require_tensors(const safetensors_file& file, std::span<const expected_tensor> expected,
                     std::string_view name);

} // namespace troupe
