#pragma once

#include "kernels/formats/safetensors.hpp"
#include "kernels/graph/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The `__metadata__` of a weights file.
struct model_info {
  std::uint64_t version = 0; ///< "model_version": updates applied since the initial weights
  std::string job_hash;      ///< "job_hash": see job_file.hpp; empty when the file has none
  /// Other metadata, such as metadata_of().
  std::map<std::string, std::string> more = {};
};

/// The path of a weights file: `given`, or the file weights.safetensors in it if `given` is an
/// output directory.
std::filesystem::path weights_path(const std::string& given);

/// The contents of a weights file.
struct model_contents {
  std::vector<float> weights; ///< (layout.size()): the flat parameter vector
  model_info info;
  /// Number of PyTorch's counters "*.num_batches_tracked", which no computation reads.
  std::size_t counters = 0;
};

/// Which tensors of a weights file a model takes. Names are patterns as in matches_glob().
struct tensor_choice {
  /// Patterns for names in the model. If there are none, all names match.
  std::vector<std::string> only;
  /// Patterns for names in the model that are excluded.
  std::vector<std::string> except;
  /// Each pair has two beginnings of names: one of names in the model, and the one that replaces it
  /// in the file. For a name, the first pair that fits applies.
  std::vector<std::pair<std::string, std::string>> renames;
};

/// The result of read_tensors(): what it took from a weights file, and what it did not take.
struct tensors_left {
  /// Number of tensors taken.
  std::size_t taken = 0;
  /// Tensors that the choice selects but the file does not contain. They are listed by the names
  /// that they should have in the file.
  std::vector<std::string> missing;
  /// Tensors of the file that the model does not use.
  std::vector<std::string> unused;
  /// See model_contents.
  std::size_t counters = 0;
};

/// Lays out the flat parameter vector as a safetensors file. Each layout entry, also one that is
/// state, becomes one tensor with the entry's name. The pieces refer to `weights`. The metadata are
/// model_version, job_hash and format = "pt", so that `safetensors.torch.load_file` reads the file.
/// @throws input_error if the length of `weights` is not that of the layout.
safetensors_pieces lay_out_model(const layout& parameters, std::span<const float> weights,
                                 const model_info& info);

/// Like `lay_out_model`, but in one piece.
std::vector<std::byte> write_model(const layout& parameters, std::span<const float> weights,
                                   const model_info& info);

/// Reads a weights file, written by troupe or by other programs. The tensors may be in any order,
/// and of type F32, F16, BF16 or F64. F64 is rounded. PyTorch's counters "*.num_batches_tracked",
/// which no computation reads, are skipped.
/// @param name the name of the file in errors, usually its path.
/// @throws input_error like parse_safetensors and require_tensors (it lists every tensor that
/// differs); also if model_version is not a number.
model_contents read_model(std::span<const std::byte> bytes, const layout& parameters,
                          std::string_view name);

/// Reads the tensors of a weights file that `choice` selects into the flat parameter vector. All
/// other values do not change.
/// @throws input_error that names `name` if a pattern fits no tensor of the model, if tensors have
/// another shape (it lists all of them), or if no tensor fits at all.
tensors_left read_tensors(std::span<const std::byte> bytes, const layout& parameters,
                          const tensor_choice& choice, std::span<float> weights,
                          std::string_view name);

/// Reads only the metadata of a weights file.
/// @throws input_error like read_model.
model_info read_model_info(std::span<const std::byte> bytes, std::string_view name);

/// @throws input_error that names the first tensor and element that is NaN or infinite.
void require_finite(const layout& parameters, std::span<const float> weights,
                    std::string_view name);

} // namespace troupe
