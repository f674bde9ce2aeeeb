#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

/// One of the workers is five times slower than the others: always the same one, or each for as
/// long as one of its gradients then takes, in turns.
enum class slowness { none, one, in_turns };

/// A job that `troupe bench async` trains: one of the examples, with changes.
struct async_work {
  std::string_view name;
  std::string_view what;
  /// A job file's text.
  const std::string_view* example;
  /// As of --set.
  std::vector<std::string> changes;
  slowness slow = slowness::none;

  /// With ASYNC_PS and without output.
  /// @param epochs 0: the example's
  proto::Job job(std::uint64_t seed, std::uint32_t epochs) const;
};

std::span<const async_work> async_works();

/// A way to make updates, and its source.
struct async_recipe {
  std::string_view name;
  /// Of the job, as of --set.
  std::vector<std::string_view> changes;
  std::string_view paper;
  /// Its numbers stay finite, whatever happens.
  bool safe = false;
  /// Workers wait for each other, or updates are fewer than gradients: gradients may be less stale.
  bool waits = false;
};

/// The default first.
std::span<const async_recipe> async_recipes();

/// How workers that hold the weights bring them together, for `--work=replicas`.
struct replica_recipe {
  std::string_view name;
  /// As of --set.
  std::vector<std::string> changes;
};

/// The one without savings first.
std::span<const replica_recipe> replica_recipes();

inline constexpr std::string_view replicas_name = "replicas";

/// MNIST's perceptron, for `--work=straggler`.
inline constexpr std::string_view straggler_name = "straggler";

/// The same, for `--work=backup`.
inline constexpr std::string_view backup_name = "backup";

} // namespace troupe::bench
