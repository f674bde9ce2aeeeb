#include "actors/model/job_file.hpp"
#include "actors/model/protocol_traits.hpp"
#include "apps/troupe/bench/async_results.hpp"
#include "apps/troupe/bench/async_runs.hpp"
#include "apps/troupe/bench/async_works.hpp"
#include "apps/troupe/bench/statistics.hpp"
#include "apps/troupe/bench/tensorflow_peer.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace troupe {

namespace {

using namespace bench;

/// Largest number of workers when speed is measured. It is small, so that nearly every machine has
/// a processor for each worker.
constexpr std::uint32_t speed_workers = 2;

constexpr std::uint32_t straggler_workers = 4;
constexpr std::chrono::milliseconds straggler_delay{20};
constexpr double straggler_goal = 0.95;
/// Number of samples between two evaluations.
constexpr std::uint32_t straggler_samples = 1024;

template <class Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> result;
  for (const auto& x : rows)
    result.emplace_back(x.name);
  return result;
}

template <class Row>
const Row* row_named(std::span<const Row> rows, const std::string& name) {
  const auto found = std::ranges::find(rows, name, &Row::name);
  return found == rows.end() ? nullptr : &*found;
}

std::vector<const async_recipe*> chosen_recipes(const bench_async_command& x) {
  std::vector<const async_recipe*> result;
  for (const auto& name : x.recipes.empty() ? names_of(async_recipes()) : x.recipes) {
    result.push_back(row_named(async_recipes(), name));
    if (result.back() == nullptr)
      throw input_error{"--recipes=" + name + ": there is no such recipe; "
                        + suggestion(name, names_of(async_recipes()))};
  }
  return result;
}

/// Refuses options that this work would ignore.
void check_options_of(const std::string& name, const bench_async_command& x) {
  if (!x.peer.empty() && name != "mlp")
    throw input_error{"--peer=" + x.peer + " trains only the work mlp, not " + name};
  const bool has_slow_worker = name == straggler_name || name == backup_name;
  if (!x.recipes.empty() && (has_slow_worker || name == replicas_name))
    throw input_error{"--work=" + name + " has no recipes; leave out --recipes"};
  if (has_slow_worker && x.workers != bench_async_command{}.workers
      && x.workers != std::vector{straggler_workers})
    throw input_error{
      fmt::format("--work={} always has {} workers; leave out --workers", name, straggler_workers)};
}

void check(const bench_async_command& x) {
  if (!x.peer.empty() && x.peer != "tf")
    throw input_error{"--peer=" + x.peer + ": expected tf"};
  if (x.seeds == 0 || x.ps == 0)
    throw input_error{"--seeds and --ps must be at least 1"};
  if (x.workers.empty() || std::ranges::min(x.workers) < 2)
    throw input_error{"--workers must be at least 2: one worker alone is never stale"};
  chosen_recipes(x);
  auto known = names_of(async_works());
  known.emplace_back(straggler_name);
  known.emplace_back(replicas_name);
  known.emplace_back(backup_name);
  for (const auto& name : x.works) {
    if (std::ranges::find(known, name) == known.end())
      throw input_error{"--work=" + name + ": there is no such work; " + suggestion(name, known)};
    check_options_of(name, x);
  }
}

/// Runs all tasks, `at_a_time` of them in parallel. If tasks throw, rethrows the exception of the
/// task that failed first.
void run_all(const std::vector<std::function<void()>>& tasks, std::uint32_t at_a_time) {
  std::atomic<std::size_t> next = 0;
  std::mutex guard;
  std::exception_ptr failure;
  const auto work = [&] {
    for (auto i = next++; i < tasks.size(); i = next++) {
      try {
        tasks[i]();
      } catch (...) {
        const std::lock_guard lock{guard};
        if (!failure)
          failure = std::current_exception();
        next = tasks.size();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < std::max(at_a_time, 1U); ++i)
      threads.emplace_back(work);
  }
  if (failure)
    std::rethrow_exception(failure);
}

proto::Job job_of(const async_work& what, const async_recipe& recipe, std::uint64_t seed,
                  std::uint32_t epochs) {
  auto result = what.job(seed, epochs);
  for (const auto& x : recipe.changes)
    apply_override(result, std::string{x});
  validate(result);
  return result;
}

/// The recipes that the user requested. If the user requested none, all recipes that support the
/// optimizer of the work.
std::vector<const async_recipe*> recipes_for(const async_work& what, const bench_async_command& x) {
  auto result = chosen_recipes(x);
  const auto refused = [&](const async_recipe* recipe) {
    try {
      job_of(what, *recipe, 1, x.epochs);
      return false;
    } catch (const input_error&) {
      return true;
    }
  };
  if (x.recipes.empty())
    std::erase_if(result, refused);
  return result;
}

// -- accuracy -----------------------------------------------------------------------------------

/// The outcome of a simulated run. Its speed is relative to a run with one worker.
outcome outcome_of(const run_summary& x, const proto::Job& job) {
  if (x.not_finite)
    return {.not_finite = true};
  const double unit = std::chrono::duration<double>(gradient_time).count();
  return {.accuracy = x.test_accuracy.value(),
          .staleness = x.staleness_mean,
          .speed = x.samples_per_second * unit / job.data().batch()};
}

/// The smallest mean staleness that is possible in a correct run: W / 2 for W workers. For two
/// workers, the limit is slightly below 1, because every gradient except the first has a staleness
/// of 1.
double least_staleness(std::uint32_t workers) {
  return std::min(workers / 2.0, 0.9 * (workers - 1));
}

void check(const async_work& what, const work_cell& x) {
  for (const auto& run : x.runs) {
    const auto where = fmt::format("{}, {}, {} workers", what.name, x.recipe->name, x.workers);
    if (run.not_finite && x.recipe->safe)
      throw std::runtime_error{where + ": the run ended with numbers that are not finite"};
    if (!x.recipe->waits && !run.not_finite && !(run.staleness >= least_staleness(x.workers)))
      throw std::runtime_error{
        fmt::format("{}: the mean staleness is {:.2f}; expected at least {:g}: this "
                    "does not measure asynchrony",
                    where, run.staleness, least_staleness(x.workers))};
  }
}

void measure_accuracy(work_results& out, const job_data& data, const bench_async_command& x) {
  const auto& what = *out.what;
  out.serial.resize(x.seeds);
  for (const auto* recipe : recipes_for(*out.what, x))
    for (const auto workers : x.workers)
      out.cells.push_back({recipe, workers, std::vector<outcome>(x.seeds)});
  std::vector<std::function<void()>> tasks;
  // All runs are independent, so several of them can run at the same time.
  for (std::uint32_t i = 0; i < x.seeds; ++i) {
    for (auto& cell : out.cells)
      tasks.emplace_back([&, i] {
        const auto job = job_of(what, *cell.recipe, i + 1, x.epochs);
        const async_cluster where{cell.workers, x.ps, what.slow};
        cell.runs[i] = outcome_of(run_in_turns(job, data, where), job);
      });
    tasks.emplace_back([&, i] {
      const auto job = what.job(i + 1, x.epochs);
      out.serial[i] = outcome_of(run_in_turns(job, data, {}), job);
    });
  }
  run_all(tasks, x.jobs > 0 ? x.jobs : std::thread::hardware_concurrency());
  for (const auto& cell : out.cells)
    check(what, cell);
}

// -- speed --------------------------------------------------------------------------------------

/// Measures the speed of each recipe (a way to make updates). Epochs with the recipe alternate with
/// epochs with the recipe NONE.
void measure_speed(work_results& out, const job_data& data, const bench_async_command& x) {
  const auto* none = row_named(async_recipes(), "NONE");
  const auto run = [&](const async_recipe& recipe) {
    const auto job = job_of(*out.what, recipe, 1, 1);
    return run_on_threads(job, data, {speed_workers, x.ps}).summary.samples_per_second;
  };
  for (const auto* recipe : recipes_for(*out.what, x)) {
    std::vector<double> speeds;
    std::vector<double> ratios;
    for (std::uint32_t i = 0; i < x.rounds; ++i) {
      const double plain = run(*none);
      speeds.push_back(run(*recipe));
      ratios.push_back(speeds.back() / plain);
    }
    if (x.rounds > 0)
      out.speeds.push_back({recipe, statistics{speeds}, statistics{ratios}});
  }
}

// -- peer ---------------------------------------------------------------------------------------

void measure_peer(work_results& out, const job_data& data, const bench_async_command& x) {
  for (const auto workers : x.workers) {
    const auto result = run_tensorflow({.python = x.python, .workers = workers, .seeds = x.seeds},
                                       out.what->job(1, x.epochs), data);
    out.peer = "TensorFlow " + result.version;
    peer_cell cell{workers, {}};
    for (const double accuracy : result.accuracies)
      cell.runs.push_back({.accuracy = accuracy});
    out.peer_cells.push_back(std::move(cell));
  }
}

// -- replicas -----------------------------------------------------------------------------------

replica_results measure_replicas(const bench_async_command& x) {
  const auto& what = *row_named(async_works(), "mlp");
  const auto data = build_data(what.job(1, x.epochs));
  replica_results out;
  out.serial.resize(x.seeds);
  for (const auto workers : x.workers)
    for (const auto& recipe : replica_recipes())
      out.cells.push_back({&recipe, workers, std::vector<outcome>(x.seeds)});
  std::vector<std::function<void()>> tasks;
  for (std::uint32_t i = 0; i < x.seeds; ++i) {
    tasks.emplace_back([&, i] {
      const auto job = what.job(i + 1, x.epochs);
      out.serial[i] = outcome_of(run_in_turns(job, data, {}), job);
    });
    for (auto& cell : out.cells)
      tasks.emplace_back([&, i] {
        auto job = what.job(i + 1, x.epochs);
        for (const auto& change : cell.recipe->changes)
          apply_override(job, change);
        const auto run = run_replicas(job, data, cell.workers);
        cell.runs[i] = outcome_of(run.summary, job);
        // One seed is enough, because runs with all seeds send the same number of bytes.
        if (i == 0) {
          cell.bytes_per_sample =
            static_cast<double>(run.bytes) / static_cast<double>(run.summary.samples);
          cell.bytes_at_once = run.bytes_at_once;
        }
      });
  }
  run_all(tasks, x.jobs > 0 ? x.jobs : std::thread::hardware_concurrency());
  return out;
}

// -- straggler ----------------------------------------------------------------------------------

double seconds_to_goal(const timed_run& x) {
  for (const auto& report : x.evaluations)
    if (report.test_accuracy >= straggler_goal)
      return report.seconds;
  return 0;
}

void measure_straggler(straggler_result& out, const protocol_traits& protocol, const job_data& data,
                       const bench_async_command& x) {
  for (std::uint32_t seed = 1; seed <= x.seeds; ++seed) {
    auto job = row_named(async_works(), "mlp")->job(seed, x.epochs);
    job.set_protocol(protocol.id);
    validate(job);
    const auto per_update = job.data().batch() * (protocol.in_step ? straggler_workers : 1);
    // An evaluation is possible only after a step that makes all copies of the weights equal. So
    // the number of steps between evaluations is a multiple of `waits`.
    const auto waits = static_cast<std::uint32_t>(protocol.waits_after(job));
    const auto every = std::max<std::uint32_t>(straggler_samples / per_update / waits, 1);
    job.mutable_evaluate()->set_every_steps(every * waits);
    const auto run =
      run_on_threads(job, data, {straggler_workers, x.ps, slowness::one}, straggler_delay);
    out.seconds.push_back(seconds_to_goal(run));
    out.totals.push_back(run.summary.seconds);
    out.accuracies.push_back(run.summary.test_accuracy.value());
  }
}

std::vector<straggler_result> measure_stragglers(const bench_async_command& x) {
  const auto data = build_data(row_named(async_works(), "mlp")->job(1, x.epochs));
  std::vector<straggler_result> result;
  for (const auto& protocol : builtin_traits()) {
    result.push_back({protocol.name, {}, {}, {}, {}});
    try {
      measure_straggler(result.back(), protocol, data, x);
    } catch (const input_error&) {
      result.pop_back(); // This protocol does not support the optimizer of the job.
    } catch (const std::runtime_error& error) {
      result.back().failure = error.what();
    }
  }
  return result;
}

// -- backup workers -----------------------------------------------------------------------------

std::vector<backup_result> measure_backups(const bench_async_command& x) {
  const auto* what = row_named(async_works(), "mlp");
  const auto data = build_data(what->job(1, x.epochs));
  const auto sync = [](std::uint32_t backup, proto::SyncPs::Late late) {
    return [=](proto::Job& job) {
      job.set_protocol(proto::SYNC_PS);
      if (backup == 0)
        return;
      job.mutable_sync_ps()->set_backup_workers(backup);
      job.mutable_sync_ps()->set_late(late);
    };
  };
  const auto local = [](proto::LocalSgd::Behind behind) {
    return [=](proto::Job& job) {
      job.set_protocol(proto::LOCAL_SGD);
      job.mutable_local_sgd()->set_every(8);
      job.mutable_local_sgd()->set_behind(behind);
    };
  };
  struct way {
    std::string name;
    async_cluster where;
    std::function<void(proto::Job&)> change;
  };
  const async_cluster slow{straggler_workers, x.ps, slowness::one};
  const async_cluster slow_replicas{straggler_workers, 0, slowness::one};
  const way ways[] = {
    {"serial", {}, sync(0, {})},
    {"sync_ps", slow, sync(0, {})},
    {"sync_ps, 1 backup, REQUEUE", slow, sync(1, proto::SyncPs::REQUEUE)},
    {"sync_ps, 1 backup, REJECT", slow, sync(1, proto::SyncPs::REJECT)},
    {"async_ps", slow, [](proto::Job&) {}},
    {"local_sgd, H = 8", slow_replicas, local(proto::LocalSgd::WAIT)},
    {"local_sgd, H = 8, CONTRIBUTE", slow_replicas, local(proto::LocalSgd::CONTRIBUTE)},
  };
  std::vector<backup_result> result;
  std::vector<std::function<void()>> tasks;
  for (const auto& way : ways) {
    const std::vector<double> unknown(x.seeds);
    result.push_back({way.name, unknown, unknown, unknown});
  }
  for (std::uint32_t i = 0; i < x.seeds; ++i)
    for (std::size_t k = 0; k < std::size(ways); ++k)
      tasks.emplace_back([&, i, k] {
        auto job = what->job(i + 1, x.epochs);
        ways[k].change(job);
        const auto run = run_in_turns(job, data, ways[k].where);
        auto& row = result[k];
        row.speeds[i] = run.samples_per_second;
        row.accuracies[i] = run.test_accuracy.value();
        const auto left_out = static_cast<double>(run.dropped_samples);
        row.left_out[i] = left_out / (left_out + static_cast<double>(run.samples));
      });
  run_all(tasks, x.jobs > 0 ? x.jobs : std::thread::hardware_concurrency());
  return result;
}

} // namespace

int run(const bench_async_command& x) {
  check(x);
  async_results results;
  results.seeds = x.seeds;
  for (const auto& name : x.works) {
    if (name == straggler_name) {
      results.stragglers = measure_stragglers(x);
      continue;
    }
    if (name == replicas_name) {
      results.replicas = measure_replicas(x);
      if (!x.json)
        print(results.replicas);
      continue;
    }
    if (name == backup_name) {
      results.backups = measure_backups(x);
      continue;
    }
    work_results of_work;
    of_work.what = row_named(async_works(), name);
    const auto data = build_data(of_work.what->job(1, x.epochs));
    // Fails now, and not after all runs, if there is no TensorFlow.
    if (!x.peer.empty())
      run_tensorflow({.python = x.python, .seeds = 0}, of_work.what->job(1, x.epochs), data);
    measure_accuracy(of_work, data, x);
    measure_speed(of_work, data, x);
    if (!x.peer.empty())
      measure_peer(of_work, data, x);
    if (!x.json)
      print(of_work);
    results.works.push_back(std::move(of_work));
  }
  if (x.json)
    fmt::print("{}\n", json_text(results));
  else {
    if (!results.stragglers.empty())
      print_stragglers(results.stragglers, straggler_goal, straggler_delay);
    if (!results.backups.empty())
      print_backups(results.backups);
  }
  int code = exit_done;
  for (const auto& row : results.stragglers)
    if (!row.failure.empty()) {
      fmt::print(stderr, "troupe: straggler, {}: {}\n", row.protocol, row.failure);
      code = exit_failed;
    }
  return code;
}

} // namespace troupe
