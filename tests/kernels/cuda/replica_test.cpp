// The weights of a replica (one worker's copy of the model) stay on a GPU. An executor and two
// updaters use them. The executor has its own device object, and the updaters share another one.

#include "kernels/cuda/gpu_executor.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/cuda/updater.hpp"
#include "kernels/optimizers/gradient_norm.hpp"
#include "tests/kernels/cuda/counting_device.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/forgetful_device.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t rows = 7;
constexpr std::size_t steps = 4;

optimizer rule() {
  optimizer result;
  result.kind = optimizer_kind::adam;
  return result;
}

std::vector<update_part> parts_of(std::size_t n) {
  return {{{0, n}, parameter_kind::trainable, rule(), 0.01, 0}};
}

range_update update_of(const std::vector<update_part>& parts, std::uint64_t step) {
  range_update result;
  result.parts = parts;
  result.scale = 1.0 / rows;
  result.step = step;
  return result;
}

/// The results of some training steps.
struct trained {
  std::vector<std::vector<float>> weights; // of all parameters after each step
  std::vector<double> losses;
  std::vector<double> norms; // squared norms
};

bool same(const trained& a, const trained& b) {
  return a.losses == b.losses && std::ranges::equal(a.weights, b.weights, same_bits);
}

/// The model of all tests, and its batches.
struct example {
  example() {
    build_classifier(m);
    m.draw(rows, 5);
    what = m.plan_for(cuda::gpu_plan_options(), rows);
    on_cpu = m.plan_for(cpu_plan_options(), rows);
    for (const auto& x : m.weights)
      initial.insert(initial.end(), x.begin(), x.end());
  }

  run_arguments<float> arguments(std::span<const feed<float>> feeds, std::uint64_t step) const {
    run_arguments<float> result;
    result.rows = rows;
    result.feeds = feeds;
    result.seed = step;
    return result;
  }

  model m;
  std::shared_ptr<const plan> what, on_cpu;
  std::vector<float> initial;
};

/// Trains without a replica on the GPU, for comparison: weights and gradients are copied through
/// the host, and the CPU updates.
trained by_host(const example& x) {
  simulated_device gpu;
  cuda::executor there(gpu, x.what);
  const auto n = x.initial.size();
  const auto updates = make_cpu_updater({n, rule().slots(), false, false});
  const auto parts = parts_of(n);
  const auto feeds = x.m.feeds();
  auto weights = x.initial;
  trained result;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<float> gradient(n);
    std::vector<const float*> pointers;
    for (const auto& tensor : x.what->parameters().entries())
      pointers.push_back(weights.data() + tensor.offset);
    auto how = x.arguments(feeds, step);
    how.weights = pointers;
    how.gradient = gradient;
    result.losses.push_back(there.run(how).loss);
    result.norms.push_back(squared_norm(x.what->parameters(), {0, n}, gradient));
    auto update = update_of(parts, step);
    update.weights = weights;
    update.gradient = gradient;
    update.updated = weights;
    updates->apply(update);
    result.weights.push_back(weights);
  }
  return result;
}

/// A replica whose parameters are divided between two updaters.
struct replica {
  template <class Make>
  replica(const example& x, Make make, bool gradient_there)
    : n(x.initial.size()), memory(std::make_shared<cuda::replica_memory>(make())) {
    for (const auto& where : split_evenly(n, 2)) {
      ranges.push_back(where);
      parts.push_back(parts_of(where.size()));
      const updater_sizes sizes{where.size(), rule().slots(), false, false, gradient_there};
      updaters.push_back(std::make_unique<cuda::updater>(memory, where.begin, sizes, piece));
      updaters.back()->write_weights(std::span{x.initial}.subspan(where.begin, where.size()));
    }
    run = std::make_unique<cuda::gpu_executor>(make(), x.what, x.on_cpu, gpu_options{}, memory);
  }

  /// @param gradient from the host, or empty if it is on the GPU
  void stage(std::uint64_t step, std::span<const float> gradient) {
    std::vector<device_replica::staged_update> all;
    for (std::size_t i = 0; i < updaters.size(); ++i) {
      auto update = update_of(parts[i], step);
      if (!gradient.empty())
        update.gradient = gradient.subspan(ranges[i].begin, ranges[i].size());
      all.push_back({updaters[i].get(), update});
    }
    if (gradient.empty())
      cuda::updater::stage_all(all);
    else
      for (const auto& x : all)
        x.updater->stage(x.how);
  }
  void publish() {
    for (auto& x : updaters)
      x->publish();
  }
  std::vector<float> weights() {
    std::vector<float> result(n);
    for (std::size_t i = 0; i < updaters.size(); ++i)
      updaters[i]->read_weights(std::span{result}.subspan(ranges[i].begin, ranges[i].size()));
    return result;
  }

  static constexpr std::size_t piece = 600;
  std::size_t n;
  std::shared_ptr<cuda::replica_memory> memory;
  std::vector<range> ranges;
  std::vector<std::vector<update_part>> parts;
  std::vector<std::unique_ptr<cuda::updater>> updaters;
  std::unique_ptr<cuda::gpu_executor> run;
};

/// Makes training steps with a replica. Only the last weights are read, because reading them waits.
template <class Make>
trained by_replica(const example& x, Make make, bool gradient_there) {
  replica there(x, make, gradient_there);
  const auto feeds = x.m.feeds();
  trained result;
  std::vector<float> gradient(gradient_there ? 0 : there.n);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    auto how = x.arguments(feeds, step);
    how.gradient = gradient;
    there.run->take_weights();
    const auto end = there.run->advance(how).value();
    result.losses.push_back(end.loss);
    result.norms.push_back(end.squared_norm);
    there.stage(step, gradient);
    there.publish();
  }
  result.weights.push_back(there.weights());
  return result;
}

std::size_t pieces_of(std::size_t n) {
  std::size_t result = 0;
  for (const auto& where : split_evenly(n, 2))
    result += (where.size() + replica::piece - 1) / replica::piece;
  return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_replica)

// The bits are the same in all orders of streams. Only the norm is added up in another order.
BOOST_AUTO_TEST_CASE(a_replica_trains_as_through_the_host) {
  const example x;
  const auto expected = by_host(x);
  with_all_orders([&](std::optional<std::uint64_t> order) {
    for (const bool gradient_there : {false, true}) {
      const auto actual = by_replica(
        x, [&] { return std::make_unique<simulated_device>(order); }, gradient_there);
      BOOST_TEST(actual.losses == expected.losses, boost::test_tools::per_element());
      BOOST_TEST(same_bits(actual.weights.back(), expected.weights.back()));
      for (std::size_t i = 0; gradient_there && i < steps; ++i)
        BOOST_TEST(std::fabs(actual.norms[i] / expected.norms[i] - 1) <= 1e-12);
    }
  });
}

// Three runs accumulate their gradients. Each has other dropout masks. The third one is recorded
// with this sum, and then replayed.
BOOST_AUTO_TEST_CASE(gradients_that_accumulate) {
  const example x;
  const auto n = x.initial.size();
  const auto feeds = x.m.feeds();
  with_all_orders([&](std::optional<std::uint64_t> order) {
    const auto memory =
      std::make_shared<cuda::replica_memory>(std::make_unique<simulated_device>(order));
    cuda::updater updates(memory, 0, {.elements = n, .gradient_there = true});
    updates.write_weights(x.initial);
    cuda::gpu_executor run(std::make_unique<simulated_device>(order), x.what, x.on_cpu,
                           {.accumulates = true}, memory);
    run.take_weights();
    std::vector<float> gradient(n);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<float> expected(n);
      for (std::uint64_t batch = 0; batch < 3; ++batch) {
        run.advance(x.arguments(feeds, 3 * step + batch)).value();
        run.read_gradient(gradient);
        std::ranges::transform(expected, gradient, expected.begin(), std::plus{});
      }
      for (std::uint64_t batch = 0; batch < 3; ++batch) {
        auto how = x.arguments(feeds, 3 * step + batch);
        how.accumulates = batch > 0;
        const auto norm = run.advance(how).value().squared_norm;
        if (batch < 2)
          continue;
        run.read_gradient(gradient);
        BOOST_TEST(same_bits(gradient, expected));
        const auto squares = squared_norm(x.what->parameters(), {0, n}, gradient);
        BOOST_TEST(std::fabs(norm - squares) <= 1e-12 * squares);
      }
    }
  });
}

// The gradient is divided by the loss scale. If a gradient overflows, its run is repeated with a
// smaller scale, and the sum does not contain the first try.
BOOST_AUTO_TEST_CASE(a_gradient_that_overflows_is_replaced) {
  example x;
  auto options = cuda::gpu_plan_options();
  options.scale_loss = true;
  const auto scaled = x.m.plan_for(options, rows);
  const auto n = x.initial.size();
  const auto memory = std::make_shared<cuda::replica_memory>(std::make_unique<simulated_device>());
  cuda::updater updates(memory, 0, {.elements = n, .gradient_there = true});
  updates.write_weights(x.initial);
  const auto make = [&](const std::shared_ptr<const plan>& what) {
    auto result =
      std::make_unique<cuda::gpu_executor>(std::make_unique<simulated_device>(), what, x.on_cpu,
                                           gpu_options{.accumulates = true}, memory);
    result->take_weights();
    return result;
  };
  const auto plain = make(x.what);
  const auto run = make(scaled);
  float scale = 0;
  auto feeds = x.m.feeds();
  const auto norm_of = [&](cuda::gpu_executor& which, std::uint64_t batch, bool replaces = false) {
    auto how = x.arguments(feeds, batch);
    how.accumulates = batch > 0;
    how.replaces = replaces;
    return which.advance(how).value().squared_norm;
  };
  std::vector<float> expected(n);
  std::vector<float> gradient(n);
  for (std::uint64_t step = 0; step < 3; ++step) { // the last step is replayed
    for (std::uint64_t batch = 0; batch < 3; ++batch)
      norm_of(*plain, batch);
    plain->read_gradient(expected);
    feeds.emplace_back(&scale);
    scale = 1024;
    norm_of(*run, 0);
    norm_of(*run, 1);
    scale = std::numeric_limits<float>::max();
    BOOST_TEST(std::isnan(norm_of(*run, 2)));
    BOOST_TEST(std::isnan(norm_of(*run, 2, true)));
    scale = 256;
    BOOST_TEST(std::isfinite(norm_of(*run, 2, true)));
    run->read_gradient(gradient);
    BOOST_TEST(same_bits(gradient, expected));
    feeds.pop_back();
  }
}

BOOST_AUTO_TEST_CASE(gradients_that_cannot_accumulate) {
  const example x;
  const auto feeds = x.m.feeds();
  auto how = x.arguments(feeds, 1);
  how.accumulates = true;
  replica there(
    x, [] { return std::make_unique<simulated_device>(); }, true);
  BOOST_CHECK_THROW(there.run->advance(how), std::invalid_argument);
  cuda::gpu_executor other(std::make_unique<simulated_device>(), x.what, x.on_cpu,
                           {.accumulates = true});
  std::vector<float> gradient(x.initial.size());
  how.gradient = gradient;
  BOOST_CHECK_THROW(other.advance(how), std::invalid_argument);
}

// A step copies its feeds, the loss and the norm. It allocates nothing, and waits once. All kernels
// of the executor are in recordings, so only its copy of the weights is submitted alone. One launch
// updates the weights of both updaters, and one launch copies them to the executor.
BOOST_AUTO_TEST_CASE(what_a_step_of_a_replica_copies) {
  const example x;
  const auto feeds = x.m.feeds();
  with_all_orders([&](std::optional<std::uint64_t> order) {
    const auto all = std::make_shared<traffic>();
    std::vector<const simulated_device*> devices;
    replica there(
      x,
      [&] {
        auto result = std::make_unique<counting_device>(order, all);
        devices.push_back(result.get());
        return result;
      },
      true);
    const auto count = [&](auto what) {
      std::size_t result = 0;
      for (const auto* const gpu : devices)
        result += (gpu->*what)();
      return result;
    };
    for (auto& updates : there.updaters)
      updates->reserve_stage();
    for (std::uint64_t step = 1; step <= 3; ++step) {
      *all = {};
      const auto allocations = count(&simulated_device::allocations);
      const auto waits = count(&simulated_device::waits);
      const auto submissions = devices[1]->single_submissions();
      const auto updates = devices[0]->single_submissions();
      there.run->take_weights();
      there.run->advance(x.arguments(feeds, step)).value();
      there.stage(step, {});
      there.publish();
      BOOST_TEST(count(&simulated_device::allocations) == allocations);
      BOOST_TEST(count(&simulated_device::waits) == waits + 1);
      if (step > 1)
        BOOST_TEST(devices[1]->single_submissions() == submissions + 1);
      BOOST_TEST(devices[0]->single_submissions() == updates + 1);
      BOOST_TEST(all->in < rows * 40 * sizeof(float));
      BOOST_TEST(all->out < 100U);
    }
  });
}

// In each step, the executor waits for the updates, its copy stream waits for the last segment, and
// the host waits. If the gradient comes from the host, there are two waits per segment. The host
// also waits for each piece of the gradient before the next piece takes its place. Only the first
// wait is not needed: write_weights() has already waited for the weights of the first step.
BOOST_AUTO_TEST_CASE(a_replica_needs_every_wait_for_an_event) {
  const example x;
  std::set<std::size_t> ends;
  for (const auto& bucket : x.what->buckets())
    ends.insert(bucket.ready_after);
  for (const bool there : {true, false})
    check_all_are_needed(
      there ? steps * 3 : steps * (1 + 2 * ends.size()) + (steps - 1) * pieces_of(x.initial.size()),
      [&](auto make) { return by_replica(x, make, there); }, same, 1);
}

// An update that is not published changes nothing. Weights that the host writes replace the weights
// on the GPU.
BOOST_AUTO_TEST_CASE(updates_that_are_dropped_and_weights_that_are_written) {
  const example x;
  const auto feeds = x.m.feeds();
  with_all_orders([&](std::optional<std::uint64_t> order) {
    replica there(
      x, [&] { return std::make_unique<simulated_device>(order); }, true);
    there.run->take_weights();
    const auto first = there.run->advance(x.arguments(feeds, 1)).value();
    there.stage(1, {});
    BOOST_TEST(same_bits(there.weights(), x.initial));
    there.run->take_weights();
    BOOST_TEST(there.run->advance(x.arguments(feeds, 1)).value().loss == first.loss);
    there.stage(1, {});
    there.publish();
    BOOST_TEST(!same_bits(there.weights(), x.initial));
    for (std::size_t i = 0; i < there.updaters.size(); ++i)
      there.updaters[i]->write_weights(
        std::span{x.initial}.subspan(there.ranges[i].begin, there.ranges[i].size()));
    there.run->take_weights();
    BOOST_TEST(there.run->advance(x.arguments(feeds, 1)).value().loss == first.loss);
  });
}

// The updaters and the executor may be destroyed in any order, even while work is under way.
BOOST_AUTO_TEST_CASE(the_ends_of_a_replica) {
  const example x;
  const auto feeds = x.m.feeds();
  with_all_orders([&](std::optional<std::uint64_t> order) {
    for (const bool updaters_first : {false, true}) {
      replica there(
        x, [&] { return std::make_unique<simulated_device>(order); }, true);
      there.run->take_weights();
      there.run->advance(x.arguments(feeds, 1)).value();
      there.stage(1, {});
      there.publish();
      there.run->take_weights();
      there.memory = nullptr;
      if (updaters_first)
        there.updaters.clear();
      there.run = nullptr;
    }
  });
}

// The caller may change its memory after a call, even if the GPU reads this memory late.
BOOST_AUTO_TEST_CASE(values_may_change_after_a_call) {
  const auto gpu = std::make_shared<simulated_device>(0); // all work runs when the host waits
  gpu->reads_late = true;
  const auto memory = std::make_shared<cuda::replica_memory>(gpu);
  cuda::updater there(memory, 0, {.elements = 5, .slots = 2});
  std::vector<float> values(5, 1.0F);
  there.restore(1, values);
  std::ranges::fill(values, 2.0F);
  there.write_weights(values);
  std::ranges::fill(values, 3.0F);
  std::vector<float> weights(5);
  there.read_weights(weights);
  BOOST_TEST(weights == std::vector<float>(5, 2.0F), boost::test_tools::per_element());
  const auto state = there.state(1);
  BOOST_TEST(std::vector<float>(state.begin(), state.end()) == std::vector<float>(5, 1.0F),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(gradients_that_are_not_finite) {
  example x;
  const auto feeds = x.m.feeds();
  replica there(
    x, [] { return std::make_unique<simulated_device>(); }, true);
  x.initial.back() = std::numeric_limits<float>::infinity();
  there.updaters.back()->write_weights(
    std::span{x.initial}.subspan(there.ranges.back().begin, there.ranges.back().size()));
  there.run->take_weights();
  auto how = x.arguments(feeds, 1);
  BOOST_TEST(std::isnan(there.run->advance(how).value().squared_norm));
  std::vector<float> gradient(there.n);
  there.run->read_gradient(gradient);
  BOOST_TEST(!std::ranges::all_of(gradient, [](float y) { return std::isfinite(y); }));
  // The arguments contain no weights, so find_not_finite() reads those on the GPU.
  how.gradient = gradient;
  BOOST_TEST(there.run->find_not_finite(how).starts_with("weights "));
}

BOOST_AUTO_TEST_CASE(memory_of_a_replica) {
  const example x;
  for (const bool gradient_there : {false, true}) {
    std::vector<const simulated_device*> devices;
    replica there(
      x,
      [&] {
        auto result = std::make_unique<simulated_device>();
        devices.push_back(result.get());
        return result;
      },
      gradient_there);
    for (auto& updates : there.updaters)
      updates->reserve_stage();
    updater_sizes all{there.n, rule().slots(), false, false, gradient_there};
    all.whole = true; // a replica updates all elements
    BOOST_TEST(devices[0]->allocated_bytes() == cuda::updater::memory_bytes(all, true));
    BOOST_TEST(devices[0]->pinned_bytes() == cuda::updater::pinned_bytes(all));
    BOOST_TEST(devices[1]->allocated_bytes() == cuda::executor::memory_bytes(*x.what));
    BOOST_TEST(devices[1]->pinned_bytes() == cuda::executor::pinned_bytes(*x.what));
  }
  simulated_device gpu;
  const gpu_options how{.accumulates = true};
  const cuda::executor sums(gpu, x.what, how);
  BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*x.what, 0, how));
  BOOST_TEST(gpu.allocated_bytes()
             == cuda::executor::memory_bytes(*x.what) + x.initial.size() * sizeof(float));
}

BOOST_AUTO_TEST_SUITE_END()
