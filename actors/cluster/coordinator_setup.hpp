#pragma once

#include "actors/coordinator/coordinator.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Everything that a coordinator's node needs to start it.
struct coordinator_setup {
  std::shared_ptr<const job_context> context;
  job_data data;
  /// All tasks of the cluster, with their addresses.
  std::vector<expected_task> tasks;
  std::string output;
  std::shared_ptr<storage> files;
  /// Receives the weights after each epoch; may be null.
  weights_listener weights;
  /// Origin of the run, written to the output.
  run_origin origin = here_and_now();
  /// The checkpoint to continue from; null: start from the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// Initial weights of a run without a checkpoint; empty: use the initializers.
  payload initial;
  /// Loss of a model that ignores the features, if known: see constant_guess_loss().
  std::optional<double> constant_guess;
  /// Notices for the operator before the run begins.
  std::vector<std::string> notices;
};

/// Creates the output directory and locks it against other runs. Then it selects the checkpoint to
/// continue from (see choose_checkpoint), or reads the initial weights. `setup` must have data,
/// context, output and files.
/// @throws input_error, or std::system_error if the directory cannot be used.
void open_output(coordinator_setup& setup, const std::optional<std::string>& resume);

} // namespace troupe
