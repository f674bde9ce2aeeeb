#pragma once

#include "apps/troupe/bench/async_works.hpp"
#include "apps/troupe/bench/statistics.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// The results of `troupe bench async`, and how they are shown.

namespace troupe::bench {

struct outcome {
  /// On the test records, with the final weights.
  double accuracy = 0;
  /// Mean over all gradients.
  double staleness = 0;
  /// Gradients in the time that one takes; 0: not measured.
  double speed = 0;
  /// The run ended with numbers that are not finite; the two values above are then unknown.
  bool not_finite = false;
};

/// Runs of a recipe with this number of workers, one per seed.
struct cell {
  const async_recipe* recipe;
  std::uint32_t workers;
  std::vector<outcome> runs;
};

struct peer_cell {
  std::uint32_t workers;
  std::vector<outcome> runs;
};

struct recipe_speed {
  const async_recipe* recipe;
  statistics samples_per_second;
  /// Relative to NONE, measured in turns.
  statistics ratio;
};

struct work_results {
  const async_work* what = nullptr;
  std::vector<outcome> serial;
  std::vector<cell> cells;
  std::vector<recipe_speed> speeds;
  std::string peer;
  std::vector<peer_cell> peer_cells;
  /// Why the peer was not measured.
  std::string peer_skipped;
};

/// Runs of a way to bring replicas together, one per seed.
struct replica_cell {
  const replica_recipe* recipe;
  std::uint32_t workers;
  std::vector<outcome> runs;
  /// Sent by all workers to each other, per sample that is trained.
  double bytes_per_sample = 0;
  /// The same in one all-reduce of gradients or weights.
  std::uint64_t bytes_at_once = 0;
};

struct replica_results {
  std::vector<outcome> serial;
  std::vector<replica_cell> cells;
};

/// Runs of a protocol with one slow worker, one per seed.
struct straggler_result {
  std::string protocol;
  /// Until the goal was reached; 0: never.
  std::vector<double> seconds;
  /// Of the whole run.
  std::vector<double> totals;
  std::vector<double> accuracies;
  /// Why there are no numbers; empty if there are some.
  std::string failure;
};

/// Runs of a way to train with one slow worker in virtual time, one per seed.
struct backup_result {
  std::string name;
  /// Samples per second, if a gradient takes 1 ms.
  std::vector<double> speeds;
  std::vector<double> accuracies;
  /// Part of the samples that was not trained.
  std::vector<double> left_out;
};

struct async_results {
  std::uint32_t seeds = 0;
  std::vector<work_results> works;
  std::vector<straggler_result> stragglers;
  replica_results replicas;
  /// The first one is serial, the second sync_ps without backups.
  std::vector<backup_result> backups;
};

void print(const work_results& x);
void print(const replica_results& x);
void print_stragglers(const std::vector<straggler_result>& x, double goal,
                      std::chrono::milliseconds delay);
void print_backups(const std::vector<backup_result>& x);
std::string json_text(const async_results& x);

} // namespace troupe::bench
