#pragma once

#include "actors/coordinator/coordinator.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Everything that a node needs to start a coordinator.
struct coordinator_setup {
  std::shared_ptr<const job_context> context;
  job_data data;
  /// All tasks of the cluster, with their addresses.
  std::vector<expected_task> tasks;
  std::string output;
  std::shared_ptr<storage> files;
  /// Receives the weights after each epoch; may be null.
  weights_listener weights;
  /// The origin of the run (such as time and host), which is written to the output.
  run_origin origin = here_and_now();
  /// The checkpoint to continue from. Null to start from the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// The directory of `resume`. An elastic run reads `resume` from it again for a later view, if
  /// the run has not yet written its own checkpoint.
  std::string resumed_from;
  /// Initial weights of a run without a checkpoint. If empty, the initializers of the layers are
  /// used.
  payload initial;
  /// Loss of a model that ignores the features: see constant_guess_loss(). Empty if unknown.
  std::optional<double> constant_guess;
  /// Notices that the operator gets before the run begins.
  std::vector<std::string> notices;
};

/// Creates the output directory and locks it against other runs. Then it selects the checkpoint to
/// continue from (see choose_checkpoint), or reads the initial weights. `setup` must have data,
/// context, output and files.
/// @throws input_error, or std::system_error if the directory cannot be used.
void open_output(coordinator_setup& setup, const std::optional<std::string>& resume);

/// Locks the output directory again for the next view (list of members) of an elastic run. Then it
/// selects the checkpoint to continue from: the newest checkpoint of this run. If this run has not
/// written any, it selects the checkpoint with which the run began.
/// @throws input_error, or std::system_error if the directory cannot be used.
void open_output_again(coordinator_setup& setup);

} // namespace troupe
