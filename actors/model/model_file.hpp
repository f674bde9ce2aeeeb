#pragma once

#include "kernels/formats/safetensors.hpp"
#include "kernels/graph/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The `__metadata__` of a weights file.
struct model_info {
  std::uint64_t version = 0; ///< "model_version": updates applied since the initial weights
  std::string job_hash;      ///< "job_hash": see job_file.hpp; empty when the file has none
  /// Other metadata, such as metadata_of().
  std::map<std::string, std::string> more = {};
};

/// The contents of a weights file.
struct model_contents {
  std::vector<float> weights; ///< (layout.size()): the flat parameter vector
  model_info info;
};

/// Lays out the flat parameter vector as a safetensors file, in pieces that refer to `weights`: one
/// tensor per layout entry, with its name, including state. The metadata are model_version,
/// job_hash and format = "pt", so that `safetensors.torch.load_file` reads the file.
/// @throws input_error if the length of `weights` is not that of the layout.
safetensors_pieces lay_out_model(const layout& parameters, std::span<const float> weights,
                                 const model_info& info);

/// Like `lay_out_model`, but in one piece.
std::vector<std::byte> write_model(const layout& parameters, std::span<const float> weights,
                                   const model_info& info);

/// Reads a weights file, written by troupe or by other programs. The tensors may be in any order,
/// and of type F32, F16, BF16 or F64, which is rounded. PyTorch's counters "*.num_batches_tracked",
/// which no computation reads, are skipped.
/// @param name the name of the file in errors, usually its path.
/// @throws input_error like parse_safetensors and require_tensors (it lists every tensor that
/// differs); also if model_version is not a number.
model_contents read_model(std::span<const std::byte> bytes, const layout& parameters,
                          std::string_view name);

/// @throws input_error that names the first tensor and element that is NaN or infinite.
void require_finite(const layout& parameters, std::span<const float> weights,
                    std::string_view name);

} // namespace troupe
