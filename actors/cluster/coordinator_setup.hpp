#pragma once

#include "actors/coordinator/coordinator.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What a node that hosts the coordinator starts it with.
struct coordinator_setup {
  std::shared_ptr<const job_context> context;
  job_data data;
  /// All tasks of the cluster, with their addresses.
  std::vector<expected_task> tasks;
  std::string output;
  std::shared_ptr<storage> files;
  /// Gets the weights after each epoch; may be null.
  weights_listener weights;
  /// Stands in what is written there.
  run_origin origin = here_and_now();
  /// What the run goes on from; null: it begins at the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// The weights that a run begins with that does not go on from a checkpoint; empty: those of the
  /// initializers.
  payload initial;
  /// The loss of a model that ignores the features, where it is known: see constant_guess_loss().
  std::optional<double> constant_guess;
  /// What the operator should know before it begins.
  std::vector<std::string> notices;
};

/// Makes the output directory, keeps other runs out of it, and chooses the checkpoint that the run
/// goes on from (see choose_checkpoint), or reads the weights that it begins with. `setup` has
/// data, context, output and files.
/// @throws input_error, or std::system_error where the directory cannot be used.
void open_output(coordinator_setup& setup, const std::optional<std::string>& resume);

} // namespace troupe
