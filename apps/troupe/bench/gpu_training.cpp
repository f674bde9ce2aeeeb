#include "apps/troupe/bench/gpu_bench.hpp"
#include "apps/troupe/bench/gpu_runner.hpp"
#include "apps/troupe/bench/stopwatch.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

// Measures whole training steps, and workers that share a GPU.

namespace troupe::bench {

namespace {

constexpr double workers_goal = 1.3;
constexpr auto compared_steps = training_peer::compared_steps;

/// The accepted difference between losses, relative to the first loss. Rounding errors grow from
/// step to step. They are larger with 16-bit types. With these types, a GPU and the CPU also round
/// in different places.
double accepted_difference(dtype precision) {
  return is_narrow(precision) ? 2e-2 : 1e-3;
}

double largest_difference(const round& a, const round& b) {
  double result = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    const double difference = i < b.losses.size()
      ? std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses.front())
      : std::nan("");
    if (!(difference <= result)) // also true for NaN
      result = difference;
  }
  return result;
}

std::string fault_of(double difference, dtype precision, std::string_view other) {
  if (difference <= accepted_difference(precision))
    return {};
  return fmt::format("the losses of the first steps differ from those of {} by {:.1e} of the first "
                     "loss; expected at most {:g}",
                     other, difference, accepted_difference(precision));
}

/// Compares the losses of the first steps with the losses of the same steps on the CPU (see
/// gpu_work::checked_batch).
void check(cuda::device& gpu, const gpu_work& what, std::size_t threads, training_result& result) {
  auto small = what.what;
  small.batch = what.checked_batch;
  const material data(small);
  const auto steps = what.checked_steps;
  const auto there = gpu_runner(gpu, small, what.precision, data).run(steps);
  const auto here = runner(small, data, threads, passing::time, what.precision).run(steps);
  result.difference = largest_difference(here, there);
  result.fault = fault_of(result.difference, what.precision, "the CPU");
}

/// Number of steps that fit in a round. `seconds` is the time of one step.
std::size_t steps_for(const gpu_rounds& how, double seconds) {
  const auto steps = std::clamp(how.seconds / std::max(seconds, 1e-9), 1.0, 1e9);
  return std::min(static_cast<std::size_t>(steps), how.turns);
}

double per_second(const work& what, std::size_t steps, double seconds) {
  return static_cast<double>(steps * what.batch) / seconds;
}

/// Measures troupe and a peer. Rounds of the two programs alternate. Both start from the same
/// weights.
peer_result measure_beside(cuda::device& gpu, const gpu_work& what, const material& data,
                           const std::string& mode, const gpu_bench_options& options) {
  peer_result result;
  result.mode = mode;
  result.goal = mode == "eager" ? what.goal_eager : mode == "graph" ? what.goal_graph : 0;
  const auto peer = options.make_peer(what, data, mode);
  result.name = peer->name();
  gpu_runner ours(gpu, what.what, what.precision, data);
  const auto a = ours.run(compared_steps);
  const auto b = peer->run(compared_steps);
  result.difference = largest_difference(a, b);
  result.fault = fault_of(result.difference, what.precision, result.name);
  const auto our_steps = steps_for(options.how, ours.run(3).seconds / 3);
  const auto their_steps = steps_for(options.how, peer->run(3).seconds / 3);
  std::vector<double> speeds;
  std::vector<double> peer_speeds;
  for (std::uint32_t i = 0; i < options.how.rounds; ++i) {
    speeds.push_back(per_second(what.what, our_steps, ours.run(our_steps).seconds));
    peer_speeds.push_back(per_second(what.what, their_steps, peer->run(their_steps).seconds));
  }
  result.ours = statistics{std::move(speeds)};
  result.theirs = statistics{std::move(peer_speeds)};
  return result;
}

} // namespace

training_result measure_training(counted_device& gpu, const gpu_work& what,
                                 const gpu_bench_options& options) {
  training_result result;
  result.what = what;
  check(gpu, what, options.threads, result);
  const material data(what.what);
  {
    gpu_runner ours(gpu, what.what, what.precision, data);
    const auto first = ours.run(compared_steps); // with both sets of feeds, and recordings
    result.first_loss = first.losses.front();
    result.steps = steps_for(options.how, ours.run(3).seconds / 3);
    const auto before = gpu.counts();
    std::vector<double> speeds;
    for (std::uint32_t i = 0; i < options.how.rounds; ++i) {
      const auto x = ours.run(result.steps);
      speeds.push_back(per_second(what.what, result.steps, x.seconds));
      result.last_loss = x.losses.back();
    }
    result.counts = gpu.counts() - before;
    result.speed = statistics{std::move(speeds)};
  }
  for (const auto& mode : options.peer_modes) {
    try {
      result.peers.push_back(measure_beside(gpu, what, data, mode, options));
    } catch (const device_error&) {
      throw;
    } catch (const input_error&) {
      throw;
    } catch (const std::runtime_error& error) { // The peer cannot do this, or has ended.
      auto& x = result.peers.emplace_back();
      x.mode = mode;
      x.unavailable = error.what();
    }
  }
  return result;
}

// -- workers that share a GPU

namespace {

/// Trains like a worker of a job: in each step, it copies the weights from the host, and copies the
/// gradient to the host.
class gpu_worker {
public:
  gpu_worker(std::unique_ptr<cuda::device> gpu, const gpu_work& what, const material& data)
    : gpu_(std::move(gpu)), what_(what.what), data_(data), gradient_(data.weights.size()),
      executor_(*gpu_, gpu_training_plan(what.what, what.precision)) {
    for (const auto& entry : data.parameters.entries())
      pointers_.push_back(data.weights.data() + entry.offset);
  }

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) {
      const auto feeds = feeds_of(what_, data_, steps_ % batches);
      const auto next = feeds_of(what_, data_, (steps_ + 1) % batches);
      run_arguments<float> arguments;
      arguments.rows = what_.batch;
      arguments.feeds = feeds;
      arguments.weights = pointers_;
      arguments.gradient = gradient_;
      arguments.batch = ++steps_;
      arguments.next = {steps_ + 1, what_.batch, next};
      loss_ = executor_.run(arguments).loss;
    }
  }

  /// Runs the first batch. Returns the gradient, followed by the loss as the last element.
  std::vector<float> first_gradient() {
    steps_ = 0;
    run(1);
    auto result = gradient_;
    result.push_back(static_cast<float>(loss_));
    return result;
  }

private:
  std::unique_ptr<cuda::device> gpu_;
  const work& what_;
  const material& data_;
  std::vector<const float*> pointers_;
  std::vector<float> gradient_;
  cuda::executor executor_;
  std::uint64_t steps_ = 0;
  double loss_ = 0;
};

} // namespace

workers_result measure_workers(const device_opener& open, const gpu_work& what,
                               const gpu_bench_options& options) {
  constexpr std::size_t count = 2;
  workers_result result;
  result.work = what.what.name;
  result.workers = count;
  result.goal = workers_goal;
  const material data(what.what);
  std::vector<std::unique_ptr<gpu_worker>> workers;
  for (std::size_t i = 0; i < count; ++i)
    workers.push_back(std::make_unique<gpu_worker>(open(options.device), what, data));
  const auto seconds = [&](std::size_t n, std::size_t steps) {
    std::vector<std::function<void()>> all;
    for (std::size_t i = 0; i < n; ++i)
      all.emplace_back([&, i] { workers[i]->run(steps); });
    const stopwatch watch(passing::time);
    options.together(all);
    return watch.seconds();
  };
  const auto alone = workers[0]->first_gradient();
  seconds(count, compared_steps);
  const auto steps = steps_for(options.how, seconds(1, 3) / 3);
  std::vector<double> one;
  std::vector<double> several;
  for (std::uint32_t i = 0; i < options.how.rounds; ++i) {
    one.push_back(per_second(what.what, steps, seconds(1, steps)));
    several.push_back(per_second(what.what, count * steps, seconds(count, steps)));
  }
  result.one = statistics{std::move(one)};
  result.all = statistics{std::move(several)};
  // All workers compute the same gradient at the same time, several times.
  std::vector<char> same(count, 1);
  std::vector<std::function<void()>> all;
  for (std::size_t i = 0; i < count; ++i)
    all.emplace_back([&, i] {
      for (std::size_t time = 0; time < compared_steps; ++time) {
        const auto again = workers[i]->first_gradient();
        if (std::memcmp(again.data(), alone.data(), alone.size() * sizeof(float)) != 0)
          same[i] = 0;
      }
    });
  options.together(all);
  if (std::ranges::count(same, 1) < static_cast<std::ptrdiff_t>(count))
    result.fault = "a gradient has other bits if several workers share the GPU";
  return result;
}

} // namespace troupe::bench
