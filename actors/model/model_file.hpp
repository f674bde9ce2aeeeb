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

/// What a weights file says about itself, in its `__metadata__`.
struct model_info {
  std::uint64_t version = 0; ///< "model_version": updates applied since the initial weights
  std::string job_hash;      ///< "job_hash": see job_file.hpp; empty when the file has none
  /// Other metadata, such as metadata_of().
  std::map<std::string, std::string> more = {};
};

/// What a weights file holds.
struct model_contents {
  std::vector<float> weights; ///< (layout.size()): the flat parameter vector
  model_info info;
};

/// The flat parameter vector as a safetensors file, in pieces that refer to `weights`: a tensor per
/// layout entry under its name, state included, metadata model_version, job_hash and format = "pt",
/// so that `safetensors.torch.load_file` reads it.
/// @throws input_error when `weights` is not as long as the layout.
safetensors_pieces lay_out_model(const layout& parameters, std::span<const float> weights,
                                 const model_info& info);

/// `lay_out_model` in one piece.
std::vector<std::byte> write_model(const layout& parameters, std::span<const float> weights,
                                   const model_info& info);

/// Reads a weights file back, of ours or of others, in any order of tensors.
/// @param name what errors call the file, usually the path.
/// @throws input_error as parse_safetensors and require_tensors (every tensor that differs is
/// listed), or when model_version is not a number.
model_contents read_model(std::span<const std::byte> bytes, const layout& parameters,
                          std::string_view name);

/// @throws input_error naming the tensor, and the first of its elements that is NaN or infinite.
void require_finite(const layout& parameters, std::span<const float> weights,
                    std::string_view name);

} // namespace troupe
