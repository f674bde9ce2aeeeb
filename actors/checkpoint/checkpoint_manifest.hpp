#pragma once

#include "actors/checkpoint/best_evaluation.hpp"
#include "actors/leases/lease_book.hpp"
#include "actors/model/job_context.hpp"
#include "messages/loss_scale_state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The last gradient of a worker that the weights of a checkpoint include. For the fields, see
/// proto::Decided.
struct checkpoint_mark {
  std::uint32_t worker = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
  /// See proto::Decided::updates. Checkpoints of earlier versions of troupe do not contain this
  /// number.
  std::optional<std::uint64_t> updates = {};
  /// The worker's loss scale after this gradient, if the job has loss scales.
  std::optional<loss_scale_state> loss_scale = {};

  bool operator==(const checkpoint_mark&) const = default;
};

/// A file of the checkpoint besides the manifest, with the size and hash that it must have.
struct checkpoint_file {
  std::string name;
  std::uint64_t size = 0;
  /// XXH3 with 128 bits, in hexadecimal digits. It detects damage, not forgery.
  std::string xxh3;

  bool operator==(const checkpoint_file&) const = default;
};

/// The contents of `checkpoint.json`, which describes the progress of training. A run with another
/// number of shards or workers can also continue from it.
struct checkpoint_manifest {
  /// Number of updates of the weights so far.
  std::uint64_t step = 0;
  /// The current epoch (from 0), and its samples that are not trained yet.
  lease_cut cut;
  /// Number of samples trained, over all epochs.
  std::uint64_t samples = 0;
  std::uint64_t view = 0;
  /// The shape of the job's data.
  data_shape data;
  /// The fingerprint of these data, if known.
  std::optional<proto::DataFingerprint> fingerprint;
  /// The job in text format, and its hash.
  std::string job;
  std::string job_hash;
  std::string troupe_version;
  /// Statistics of asynchronous shards, which they use to correct stale and large gradients.
  /// Nothing for other protocols.
  std::optional<proto::PacingState> pacing = {};
  /// Present if the job has early_stopping or checkpoint.keep_best.
  std::optional<best_evaluation> best = {};
  std::vector<checkpoint_mark> marks;
  std::vector<checkpoint_file> files;
};

/// The loss scale with which a worker of a resumed run begins. This is the scale in the worker's
/// mark. If the run has more workers than before, a new worker has no mark, and gets the largest
/// scale of all marks. A scale that is too large is halved at once, but a scale that is too small
/// grows slowly. The result is empty if no mark has a scale.
std::optional<loss_scale_state> resumed_scale(std::span<const checkpoint_mark> marks,
                                              std::uint32_t worker);

/// Names of checkpoints begin with this.
inline constexpr std::string_view checkpoint_prefix = "step-";

/// The name of a checkpoint: "step-00000050".
std::string checkpoint_name(std::uint64_t step);

/// The step in a name that checkpoint_name() made; 0 for any other name.
std::uint64_t checkpoint_step(std::string_view name) noexcept;

/// The manifest as JSON.
std::string to_json(const checkpoint_manifest& x);

/// Reads a manifest.
/// @param name the name of the file in errors.
/// @throws input_error that names the file and the field, if the bytes are not JSON or have another
/// format version, if a field is missing or has another type, or if ranges overlap or lie outside
/// the data.
checkpoint_manifest parse_manifest(std::span<const std::byte> bytes, std::string_view name);

} // namespace troupe
