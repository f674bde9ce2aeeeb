#pragma once

#include "actors/checkpoint/checkpoint_manifest.hpp"
#include "actors/storage/storage.hpp"
#include "messages/buffer.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

// A checkpoint is a directory, `step-00000050` for the state after 50 updates:
//
//   checkpoint.json         the position in training; size and hash of the other files
//   weights.safetensors     the weights, as a run writes them at its end
//   optimizer.safetensors   the state of optimizers: a tensor per parameter and slot, such as
//                           "exp_avg/dense_1.weight"; without tensors if there is none

namespace troupe {

/// The state of a run, either read from a checkpoint or about to be written.
struct checkpoint {
  checkpoint_manifest manifest;
  /// First the whole flat parameter vector, float32. Then vectors of the same length with the
  /// optimizer's state, named by state_names().
  std::vector<payload> slots;
  /// The directory from which the checkpoint was read.
  std::filesystem::path directory;
};

/// The files of a checkpoint. Their bytes refer to the slots of `x`. The manifest file contains the
/// sizes and hashes of the other files.
/// @throws input_error if the length of a slot differs from the layout's.
std::vector<named_contents> encode_checkpoint(const job_context& context, const checkpoint& x);

/// The checked files of a checkpoint: their sizes and hashes match the manifest.
struct checkpoint_files {
  checkpoint_manifest manifest;
  std::vector<std::byte> weights;
  std::vector<std::byte> optimizer;
  std::filesystem::path directory;
};

/// Reads the files of a checkpoint from its directory, and checks them.
/// @throws input_error that names the file if it is missing, unreadable or damaged.
checkpoint_files read_checkpoint(storage& from, const std::filesystem::path& directory);

/// The state in these files, if a run of this job can continue from it.
/// @throws input_error that names the difference: all tensors that differ, the kind of optimizer,
/// the data, the seed, or too few epochs.
checkpoint fit_checkpoint(const checkpoint_files& files, const job_context& context);

/// Keeps the `keep` newest checkpoints up to `step` in a folder, and removes all older ones.
void keep_checkpoints(storage& where, const std::filesystem::path& folder, std::uint64_t step,
                      std::size_t keep);

} // namespace troupe
