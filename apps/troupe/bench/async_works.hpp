#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

/// Which worker is five times slower than the others: none, always the same one, or each worker in
/// turn, for the duration of one slow gradient.
enum class slowness { none, one, in_turns };

/// A job for `troupe bench async`: one of the jobs in apps/examples, with changes.
struct async_work {
  std::string_view name;
  std::string_view what;
  /// The text of the job file.
  const std::string_view* example;
  /// Changes to the job, in the format of `troupe train --set`.
  std::vector<std::string> changes;
  slowness slow = slowness::none;

  /// The job, with the protocol ASYNC_PS and without an output directory.
  /// @param epochs number of epochs; 0 means the number in the example
  proto::Job job(std::uint64_t seed, std::uint32_t epochs) const;
};

std::span<const async_work> async_works();

/// A way to make updates, and the paper that describes it.
struct async_recipe {
  std::string_view name;
  /// Changes to the job, in the format of `troupe train --set`.
  std::vector<std::string_view> changes;
  std::string_view paper;
  /// True if the numbers of a run with this recipe always stay finite.
  bool safe = false;
  /// True if workers wait for each other, or if several gradients make one update. The gradients
  /// may then be less stale.
  bool waits = false;
};

/// All recipes. The first recipe is what a job uses by default.
std::span<const async_recipe> async_recipes();

/// A way to average the workers' copies of the weights (replicas), for `--work=replicas`.
struct replica_recipe {
  std::string_view name;
  /// Changes to the job, in the format of `troupe train --set`.
  std::vector<std::string> changes;
};

/// All recipes. The first recipe does nothing to save communication.
std::span<const replica_recipe> replica_recipes();

inline constexpr std::string_view replicas_name = "replicas";

/// The name of `--work=straggler`, which trains the perceptron for MNIST with one slow worker.
inline constexpr std::string_view straggler_name = "straggler";

/// The name of `--work=backup`, which trains the perceptron for MNIST with and without backup
/// workers.
inline constexpr std::string_view backup_name = "backup";

} // namespace troupe::bench
