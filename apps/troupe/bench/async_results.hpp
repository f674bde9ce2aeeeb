#pragma once

#include "apps/troupe/bench/async_works.hpp"
#include "apps/troupe/bench/statistics.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// The results of `troupe bench async`, and functions that print them.

namespace troupe::bench {

struct outcome {
  /// Accuracy on the test records with the final weights.
  double accuracy = 0;
  /// Mean staleness of all gradients.
  double staleness = 0;
  /// The speed relative to one worker: the number of gradients that all workers together compute in
  /// the time of one gradient. 0 if not measured.
  double speed = 0;
  /// True if the run ended with numbers that are not finite. The accuracy and the staleness are
  /// then unknown.
  bool not_finite = false;
};

/// Runs of a recipe (a way to make updates) with this number of workers, one run per seed.
struct work_cell {
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
  /// Speed relative to the recipe NONE, whose epochs alternate with epochs of this recipe.
  statistics ratio;
};

struct work_results {
  const async_work* what = nullptr;
  std::vector<outcome> serial;
  std::vector<work_cell> cells;
  std::vector<recipe_speed> speeds;
  std::string peer;
  std::vector<peer_cell> peer_cells;
};

/// Runs of one way to average the workers' copies of the weights, one run per seed.
struct replica_cell {
  const replica_recipe* recipe;
  std::uint32_t workers;
  std::vector<outcome> runs;
  /// Bytes that all workers together send to each other, divided by the number of trained samples.
  double bytes_per_sample = 0;
  /// Bytes that all workers send to each other in one all-reduce of gradients or weights.
  std::uint64_t bytes_at_once = 0;
};

struct replica_results {
  std::vector<outcome> serial;
  std::vector<replica_cell> cells;
};

/// Runs of a protocol with one slow worker, one run per seed.
struct straggler_result {
  std::string protocol;
  /// Seconds until the accuracy reached the goal. 0 if it never did.
  std::vector<double> seconds;
  /// Seconds of the whole run.
  std::vector<double> totals;
  std::vector<double> accuracies;
  /// The reason why there are no results. Empty if there are results.
  std::string failure;
};

/// Simulated runs of one configuration with a slow worker, in virtual time, one run per seed.
struct backup_result {
  std::string name;
  /// Samples per second, if a gradient takes 1 ms.
  std::vector<double> speeds;
  std::vector<double> accuracies;
  /// The share of the samples that were not trained, because no update used their gradients.
  std::vector<double> left_out;
};

struct async_results {
  std::uint32_t seeds = 0;
  std::vector<work_results> works;
  std::vector<straggler_result> stragglers;
  replica_results replicas;
  /// The first result is a run with one worker. The second is sync_ps without backup workers.
  std::vector<backup_result> backups;
};

void print(const work_results& x);
void print(const replica_results& x);
void print_stragglers(const std::vector<straggler_result>& x, double goal,
                      std::chrono::milliseconds delay);
void print_backups(const std::vector<backup_result>& x);
std::string json_text(const async_results& x);

} // namespace troupe::bench
