#include "apps/troupe/bench/async_runs.hpp"

#include "actors/cluster/training.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/protocol_traits.hpp"
#include "actors/simulation/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace troupe::bench {

namespace {

void check(const run_summary& x, const proto::Job& job, const async_cluster& where) {
  const auto what = fmt::format("{}, seed {}, {} workers, {}", job.name(), job.seed(),
                                where.workers, traits_of(job).name);
  if (x.not_finite)
    return;
  if (!x.failure.empty())
    throw std::runtime_error{what + ": " + x.failure};
  if (!x.counted || x.split != 0 || x.lost != 0)
    throw std::runtime_error{
      fmt::format("{}: the ledger has {} split and {} lost gradients", what, x.split, x.lost)};
}

/// Records for runs with slow gradients: reading them takes as long as computing a gradient would.
/// Each read of a whole batch takes `delay`. Reads of other sizes are not delayed. If `slow` is
/// true, the thread that reads the first batch is the slow worker. Its reads take slow_factor times
/// as long.
class delayed_records : public dataset {
public:
  delayed_records(std::shared_ptr<const dataset> records, std::size_t batch,
                  std::chrono::microseconds delay, bool slow)
    : records_(std::move(records)), batch_(batch), delay_(delay), slow_(slow) {}

  std::uint64_t size() const noexcept override { return records_->size(); }
  const record_shape& record() const noexcept override { return records_->record(); }
  std::size_t memory_bytes() const noexcept override { return records_->memory_bytes(); }
  const dataset& storage() const noexcept override { return records_->storage(); }
  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    return records_->entries(records);
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    if (records.size() == batch_) {
      std::call_once(once_, [&] { first_ = std::this_thread::get_id(); });
      const bool slow = slow_ && first_ == std::this_thread::get_id();
      std::this_thread::sleep_for(slow ? slow_factor * delay_ : delay_);
    }
    records_->read(records, features, labels);
  }

private:
  std::shared_ptr<const dataset> records_;
  std::size_t batch_;
  std::chrono::microseconds delay_;
  bool slow_;
  mutable std::once_flag once_;
  mutable std::thread::id first_;
};

/// Keeps the evaluations of a run, so that they can be read after the actor system has ended.
class listener : public run_observer::base {
public:
  listener(caf::actor_config& cfg, std::vector<epoch_report>* out)
    : run_observer::base(cfg), out_(out) {}

protected:
  behavior_type make_behavior() override {
    return {
      [](const run_progress&) {},
      [this](const epoch_report& x) { out_->push_back(x); },
      [](const run_summary&) {},
      [](const run_notice&) {},
    };
  }

private:
  std::vector<epoch_report>* out_;
};

} // namespace

run_summary run_in_turns(const proto::Job& job, const job_data& data, const async_cluster& where) {
  constexpr auto unit = gradient_time;
  simulation_options options;
  options.seed = job.seed();
  options.job = job;
  options.data = data;
  options.workers = where.workers;
  options.ps = where.ps;
  options.one_node = true;
  options.limit = std::chrono::hours{24};
  // Workers finish one after the other: worker i of W finishes a gradient at the times n + i / W,
  // for whole numbers n, in units of the time of a gradient. Without this rule, all workers would
  // finish at the same time, because they all begin an epoch at the same time.
  options.gradient_done = [&](std::size_t i, std::chrono::nanoseconds now) {
    const auto phase = unit * i / where.workers;
    const auto turn = static_cast<std::size_t>(now / (slow_factor * unit)) % where.workers;
    const bool slow =
      where.slow == slowness::in_turns ? i == turn : where.slow == slowness::one && i == 0;
    const auto rounds = (now - phase + unit) / unit + (slow ? slow_factor - 1 : 0);
    return phase + rounds * unit;
  };
  auto result = simulate(options).summary;
  check(result, job, where);
  return result;
}

counted_run run_replicas(const proto::Job& job, const job_data& data, std::uint32_t workers) {
  simulation_options options;
  options.seed = job.seed();
  options.job = job;
  options.data = data;
  options.workers = workers;
  options.ps = 0;
  options.limit = std::chrono::hours{24};
  counted_run result;
  std::map<std::uint64_t, std::uint64_t> by_reduction;
  simulation run{options};
  run.network().judge_with([&by_reduction](sim_node, sim_node, const caf::message& content) {
    if (content.match_elements<proto::Frame, caf::message>()) {
      const auto& inner = content.get_as<caf::message>(1);
      if (inner.match_elements<proto::Segment, payload>())
        by_reduction[inner.get_as<proto::Segment>(0).step()] += inner.get_as<payload>(1).size();
    }
    return verdict::deliver;
  });
  result.summary = run.run().summary;
  std::vector<std::uint64_t> sizes;
  for (const auto& [number, bytes] : by_reduction) {
    result.bytes += bytes;
    sizes.push_back(bytes);
  }
  std::ranges::sort(sizes);
  result.bytes_at_once = sizes.empty() ? 0 : sizes[sizes.size() / 2];
  check(result.summary, job, {.workers = workers, .ps = 0});
  return result;
}

timed_run run_on_threads(const proto::Job& job, const job_data& data, const async_cluster& where,
                         std::chrono::microseconds delay) {
  timed_run result;
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  caf::error failure;
  {
    caf::actor_system sys{cfg};
    caf::scoped_actor self{sys};
    training_options options;
    options.job = job;
    // The job needs no data section, because the data is already read and split.
    options.job.clear_data();
    options.job.mutable_data()->set_batch(job.data().batch());
    options.data = data;
    if (delay.count() > 0)
      options.data.train = std::make_shared<delayed_records>(data.train, job.data().batch(), delay,
                                                             where.slow != slowness::none);
    options.workers = where.workers;
    options.ps = where.ps;
    options.observer = sys.spawn<listener>(&result.evaluations);
    self->request(spawn_training(sys, std::move(options)), caf::infinite, begin_training{})
      .receive([&](const trained& x) { result.summary = x.summary; },
               [&](const caf::error& error) { failure = error; });
  }
  if (failure)
    throw std::runtime_error{job.name() + ": " + explain(failure)};
  check(result.summary, job, where);
  return result;
}

} // namespace troupe::bench
