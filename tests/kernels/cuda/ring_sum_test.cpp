// The devices of several replicas add up the replicas' gradients.

#include "kernels/cuda/gpus.hpp"
#include "kernels/cuda/updater.hpp"
#include "kernels/devices/device_ring.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/forgetful_device.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t batch_rows = 7;
constexpr std::size_t sum_steps = 3;

/// A model and its batches. Each rank has its own batch.
struct ranks_example {
  explicit ranks_example(std::size_t ranks) : models(ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      build_classifier(models[rank]);
      models[rank].draw(batch_rows, 5, rank);
    }
    what = models[0].plan_for(cuda::gpu_plan_options(), batch_rows);
    on_cpu = models[0].plan_for(cpu_plan_options(), batch_rows);
    for (const auto& x : models[0].weights)
      initial.insert(initial.end(), x.begin(), x.end());
  }

  std::vector<model> models;
  std::shared_ptr<const plan> what, on_cpu;
  std::vector<float> initial;
};

/// Two ranges of the parameters. The first one has only 2 elements, so some ranks may have empty
/// segments.
std::array<range, 2> ranges_of(std::size_t n) {
  return {range{0, 2}, range{2, n}};
}

/// All ranks of a ring, in one thread. They need no messages, because the thread makes their calls
/// in the required order.
class ranks {
public:
  ranks(const ranks_example& x, const gpu_set& gpus, std::span<const std::size_t> places)
    : example_(x), ring_(gpus.open_ring(places)) {
    const auto n = x.initial.size();
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      replicas_.push_back(ring_->open(rank));
      auto& updaters = updaters_.emplace_back();
      for (const auto& where : ranges_of(n)) {
        const updater_sizes sizes{.elements = where.size(),
                                  .gradient_there = true,
                                  .in_ring = true,
                                  .norm_parts = norm_parts_of(x.what->parameters(), where)};
        updaters.push_back(replicas_.back()->updaters_from(where.begin)(sizes));
        updaters.back()->write_weights(std::span{x.initial}.subspan(where.begin, where.size()));
      }
      runs_.push_back(replicas_.back()->make_executor(x.what, x.on_cpu));
    }
    ring_ = nullptr;
    replicas_.clear();
  }

  std::size_t size() const { return runs_.size(); }
  device_executor& run(std::size_t rank) { return *runs_[rank]; }
  device_updater& updates(std::size_t rank, std::size_t i) { return *updaters_[rank][i]; }

  void compute(std::uint64_t step) {
    for (std::size_t rank = 0; rank < size(); ++rank) {
      run_arguments<float> how;
      how.rows = batch_rows;
      const auto feeds = example_.models[rank].feeds();
      how.feeds = feeds;
      how.seed = step;
      runs_[rank]->take_weights();
      runs_[rank]->advance(how).value();
    }
  }

  /// Adds up the gradients. Returns the squared norm of each range of each rank.
  /// @param first the rank that waits first
  std::vector<double> squared_norms(std::size_t first = 0) {
    for (auto& rank : updaters_)
      for (auto& x : rank)
        x->add_up();
    for (auto& rank : updaters_)
      for (auto& x : rank)
        x->gather();
    std::vector<double> result(2 * size());
    for (std::size_t k = 0; k < size(); ++k)
      for (std::size_t i = 0; i < 2; ++i) {
        const auto rank = (first + k) % size();
        result[2 * rank + i] = updaters_[rank][i]->squared_norm_of_sum();
      }
    return result;
  }
  /// Adds up the gradients. Returns true if all sums are finite.
  bool add_up(std::size_t first = 0) {
    return std::ranges::all_of(squared_norms(first), [](double x) { return std::isfinite(x); });
  }

  /// A step of plain gradient descent with rate 1. The gradient is the sum, not the mean.
  void update() {
    for (auto& rank : updaters_)
      for (std::size_t i = 0; i < rank.size(); ++i) {
        optimizer rule;
        rule.kind = optimizer_kind::sgd;
        const std::vector<update_part> parts{{{0, ranges_of(example_.initial.size())[i].size()},
                                              parameter_kind::trainable,
                                              rule,
                                              1,
                                              0}};
        range_update x;
        x.parts = parts;
        rank[i]->stage(x);
        rank[i]->publish();
      }
  }

  std::vector<float> weights(std::size_t rank) {
    std::vector<float> result(example_.initial.size());
    for (std::size_t i = 0; i < 2; ++i) {
      const auto where = ranges_of(result.size())[i];
      updaters_[rank][i]->read_weights(std::span{result}.subspan(where.begin, where.size()));
    }
    return result;
  }
  std::vector<float> gradient(std::size_t rank) {
    std::vector<float> result(example_.initial.size());
    runs_[rank]->read_gradient(result);
    return result;
  }

private:
  const ranks_example& example_;
  std::shared_ptr<device_ring> ring_;
  std::vector<std::unique_ptr<device_replica>> replicas_;
  std::vector<std::vector<std::unique_ptr<device_updater>>> updaters_;
  std::vector<std::unique_ptr<device_executor>> runs_;
};

/// The sum in the order of the ring: segment s is added up in the order of ranks s, s + 1 and so
/// on.
std::vector<float> sum_of(const std::vector<std::vector<float>>& gradients) {
  std::vector<float> result(gradients[0].size());
  for (const auto& where : ranges_of(result.size())) {
    const auto segments = split_evenly(where.size(), gradients.size());
    for (std::size_t s = 0; s < segments.size(); ++s)
      for (auto i = where.begin + segments[s].begin; i < where.begin + segments[s].end; ++i) {
        result[i] = gradients[s][i];
        for (std::size_t k = 1; k < gradients.size(); ++k)
          result[i] += gradients[(s + k) % gradients.size()][i];
      }
  }
  return result;
}

/// The GPU of each rank. There are two GPUs, and there may be more ranks.
std::vector<std::size_t> places(std::size_t ranks) {
  std::vector<std::size_t> result;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.push_back(rank % 2);
  return result;
}

template <class Make>
std::unique_ptr<gpu_set> two_gpus(Make make) {
  return cuda::make_gpus([make](std::size_t index) -> std::unique_ptr<cuda::device> {
    auto result = make();
    result->gpu = index;
    return result;
  });
}

/// The weights of all ranks after some steps.
template <class Make>
std::vector<std::vector<float>> weights_after_steps(const ranks_example& x, Make make,
                                                    std::size_t first) {
  ranks all(x, *two_gpus(make), places(x.models.size()));
  for (std::uint64_t step = 1; step <= sum_steps; ++step) {
    all.compute(step);
    all.add_up(first);
    all.update();
  }
  std::vector<std::vector<float>> result;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    result.push_back(all.weights(rank));
  return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_ring_sum)

BOOST_AUTO_TEST_CASE(sums_have_the_bits_of_the_ring) {
  for (const std::size_t count : {2, 3, 5}) {
    const ranks_example x(count);
    with_all_orders([&](std::optional<std::uint64_t> order) {
      ranks all(x, *two_gpus([order] { return std::make_unique<simulated_device>(order); }),
                places(count));
      auto expected = x.initial;
      for (std::uint64_t step = 1; step <= sum_steps; ++step) {
        all.compute(step);
        std::vector<std::vector<float>> gradients;
        for (std::size_t rank = 0; rank < count; ++rank)
          gradients.push_back(all.gradient(rank));
        const auto sum = sum_of(gradients);
        std::ranges::transform(expected, sum, expected.begin(), std::minus{});
        const auto norms = all.squared_norms();
        all.update();
        for (std::size_t rank = 0; rank < count; ++rank) {
          BOOST_TEST(same_bits(all.weights(rank), expected));
          for (std::size_t i = 0; i < 2; ++i) {
            const auto where = ranges_of(sum.size())[i];
            const auto squares = squared_norm(x.what->parameters(), where,
                                              std::span{sum}.subspan(where.begin, where.size()));
            BOOST_TEST(std::fabs(norms[2 * rank + i] - squares) <= 1e-12 * squares);
            BOOST_TEST(norms[2 * rank + i] == norms[i]);
          }
        }
      }
    });
  }
}

// In each step, each of two ranks waits three times for its updates and its run. In addition, each
// rank waits twice for each of two ranges: its stream waits for the other rank, and the host waits
// for the sum. In the first step, the weights are there since write_weights(), so the two waits for
// updates are not needed.
BOOST_AUTO_TEST_CASE(a_sum_needs_every_wait_for_an_event) {
  const ranks_example x(2);
  std::size_t runs = 0;
  const auto run = [&](auto make) { return weights_after_steps(x, make, runs++ % 2); };
  const auto expected = run([] { return std::make_unique<simulated_device>(); });
  const auto is_right = [&](const auto& y) { return std::ranges::equal(y, expected, same_bits); };
  event_waits waits;
  BOOST_TEST(is_right(run([&] { return std::make_unique<forgetful_device>(0, waits); })));
  constexpr std::size_t each = 2 * 3 + 2 * 2 + 2 * 2;
  BOOST_TEST(waits.so_far == sum_steps * each);
  for (std::size_t i = 0; i < waits.so_far; ++i)
    if (i != 0 && i != 3 && i % each < 2 * 3 + 2 * 2)
      BOOST_TEST(is_missed(i, run, is_right), "nothing shows that wait " << i << " is missing");
}

BOOST_AUTO_TEST_CASE(the_host_waits_for_each_sum) {
  ranks_example x(2);
  x.initial.back() = std::numeric_limits<float>::infinity();
  const auto run = [&](auto make) {
    ranks all(x, *two_gpus(make), places(2));
    all.compute(1);
    return all.squared_norms();
  };
  const auto is_right = [](const std::vector<double>& norms) {
    return std::ranges::all_of(norms, [](double y) { return std::isnan(y); });
  };
  BOOST_TEST(is_right(run([] { return std::make_unique<simulated_device>(); })));
  for (std::size_t i = 10; i < 14; ++i)
    BOOST_TEST(is_missed(i, run, is_right), "nothing shows that wait " << i << " is missing");
}

BOOST_AUTO_TEST_CASE(gradients_that_are_left_out) {
  const ranks_example x(3);
  with_all_orders([&](std::optional<std::uint64_t> order) {
    ranks all(x, *two_gpus([order] { return std::make_unique<simulated_device>(order); }),
              places(3));
    all.compute(1);
    auto gradients = std::vector{all.gradient(0), all.gradient(1), all.gradient(2)};
    all.run(1).spoil_gradient();
    BOOST_TEST(!all.add_up());
    for (std::size_t i = 0; i < 2; ++i)
      all.updates(1, i).clear_gradient();
    BOOST_TEST(all.add_up());
    all.update();
    gradients[1].assign(x.initial.size(), 0);
    auto expected = x.initial;
    std::ranges::transform(expected, sum_of(gradients), expected.begin(), std::minus{});
    BOOST_TEST(same_bits(all.weights(0), expected));
    BOOST_TEST(same_bits(all.weights(2), expected));
  });
}

BOOST_AUTO_TEST_CASE(gpus_without_access_to_each_other) {
  const auto gpus = two_gpus([] {
    auto result = std::make_unique<simulated_device>();
    result->has_peers = false;
    return result;
  });
  const auto refused = [&](const std::vector<std::size_t>& on) {
    try {
      gpus->open_ring(on);
      return std::string{};
    } catch (const device_error& error) {
      return std::string{error.what()};
    }
  };
  BOOST_TEST(refused({0, 1})
             == "the GPU simulated (number 0) cannot access the memory of GPU number 1");
  BOOST_TEST(refused({1, 1}) == "");
  BOOST_TEST(refused(std::vector<std::size_t>(65)) == "");
  BOOST_TEST(refused(std::vector<std::size_t>(66))
             == "GPUs add up the gradients of 2 to 65 workers; there are 66");
  BOOST_TEST(refused({0}) == "GPUs add up the gradients of 2 to 65 workers; there are 1");
}

BOOST_AUTO_TEST_CASE(memory_of_a_sum) {
  const ranks_example x(2);
  std::vector<const simulated_device*> devices;
  const auto gpus = cuda::make_gpus([&](std::size_t) -> std::unique_ptr<cuda::device> {
    auto result = std::make_unique<simulated_device>();
    devices.push_back(result.get());
    return result;
  });
  const auto ring = gpus->open_ring(std::vector<std::size_t>{0, 0});
  const auto replica = ring->open(0);
  const updater_sizes sizes{.elements = 100,
                            .slots = 2,
                            .gradient_there = true,
                            .in_ring = true,
                            .norm_parts = {{{0, 30}, true}, {{30, 100}, false}}};
  const auto updates = replica->updaters_from(0)(sizes);
  updates->reserve_stage();
  BOOST_TEST(devices.back()->allocated_bytes() == cuda::updater::memory_bytes(sizes, true));
  BOOST_TEST(devices.back()->pinned_bytes() == cuda::updater::pinned_bytes(sizes));
  auto alone = sizes;
  alone.in_ring = false;
  BOOST_TEST(gpus->memory_of(sizes, true).device >= gpus->memory_of(alone, true).device + 400);
}

BOOST_AUTO_TEST_SUITE_END()
