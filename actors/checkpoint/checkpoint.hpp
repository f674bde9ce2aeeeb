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
//   weights.safetensors     the weights, in the format of the file at the end of a run
//   optimizer.safetensors   the state of optimizers: one tensor for each parameter and each slot
//                           (kind of state), such as "exp_avg/dense_1.weight". The file has no
//                           tensors if the optimizers have no state

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

/// Encodes the files of a checkpoint. The files refer to the bytes of `x.slots`, so `x` must
/// outlive them. The manifest file contains the sizes and hashes of the other files.
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

/// Decodes the state in these files, and checks that a run of this job can continue from it.
/// @throws input_error if tensors differ (it lists all of them), if the kind of optimizer, the data
/// or the seed differs, or if the job has too few epochs.
checkpoint fit_checkpoint(const checkpoint_files& files, const job_context& context);

/// Removes old checkpoints from a folder. Of the checkpoints up to `step`, the `keep` newest stay.
/// Checkpoints after `step` stay too.
void keep_checkpoints(storage& where, const std::filesystem::path& folder, std::uint64_t step,
                      std::size_t keep);

} // namespace troupe
