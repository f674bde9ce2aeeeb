#pragma once

#include "actors/checkpoint/resume.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <memory>
#include <string>
#include <vector>

// Simulated runs with a checkpoint after each step, and runs that continue from such a checkpoint.

namespace troupe::test {

inline constexpr std::uint64_t records = 150;
inline constexpr std::uint64_t steps = 40;

/// A job that keeps all its checkpoints and makes one after every `every` steps (0: none). With 16
/// samples per step, it has 40 steps in 4 epochs. The last step of each epoch has a small batch.
/// The optimizer has a momentum, and the learning rate changes in every step.
inline proto::Job forty_steps(const std::vector<std::string>& more, std::uint64_t every = 1) {
  std::vector<std::string> changes{"model.layer[0].dense.units=8",
                                   "data.digits={train: 150 test: 20}", "data.batch=16", "epochs=4",
                                   "output=out"};
  if (every > 0)
    changes.push_back("checkpoint={every_steps: " + std::to_string(every) + " keep: 100}");
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

/// A simulated cluster that keeps the files of its runs in memory.
struct site {
  explicit site(simulation_options how) : options(std::move(how)) {
    options.files = std::make_shared<memory_storage>();
  }

  std::vector<std::string> checkpoints() const {
    return options.files->directories(checkpoint_folder("out"));
  }

  std::shared_ptr<const checkpoint> load(std::uint64_t step, const proto::Job& job) const {
    const auto context = make_job_context(job, shape_of(*options.data.train));
    const auto folder = checkpoint_folder("out");
    return std::make_shared<checkpoint>(
      fit_checkpoint(read_checkpoint(*options.files, folder / checkpoint_name(step)), *context));
  }

  std::shared_ptr<const checkpoint> newest(const proto::Job& job) const {
    const auto context = make_job_context(job, shape_of(*options.data.train));
    return choose_checkpoint(*options.files, "out", "", *context).from;
  }

  simulation_options options;
};

/// Options of a run of `job` that continues from the checkpoint of `step` in the files of `from`.
inline simulation_options going_on(const site& from, const proto::Job& job, std::size_t workers,
                                   std::size_t ps, std::uint64_t step) {
  auto result = from.options;
  result.files = nullptr;
  result.job = job;
  result.workers = workers;
  result.ps = ps;
  result.resume = from.load(step, job);
  return result;
}

} // namespace troupe::test
