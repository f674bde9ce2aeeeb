#include "kernels/cuda/updater.hpp"

#include "kernels/cuda/gpus.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Divides n parameters into parts: 10 frozen parameters, n - 70 with one rule, 5 of layer state,
/// and 55 with another rule.
std::vector<update_part> parts_of(const optimizer& rule, std::size_t n) {
  auto other = rule;
  other.weight_decay = 0.01F;
  return {{{0, 10}, parameter_kind::frozen, {}, 0, 0},
          {{10, n - 60}, parameter_kind::trainable, rule, 0.1, 0},
          {{n - 60, n - 55}, parameter_kind::state, {}, 0, 0.25},
          {{n - 55, n}, parameter_kind::trainable, other, 0.05, 0}};
}

updater_sizes sizes_of(const optimizer& rule, std::size_t n, bool apart) {
  return {n, rule.slots() - (apart ? 1 : 0), apart, rule.by_tensor()};
}

/// `count` ranges of one element each: every second element.
range_list scattered(std::size_t count) {
  range_list result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back({2 * i, 2 * i + 1});
  return result;
}

/// A device that measures its peak use of device memory, and its peak use of pinned memory.
class measured_device final : public simulated_device {
public:
  void* allocate(std::size_t bytes) override {
    auto* const result = simulated_device::allocate(bytes);
    memory.add(result, bytes);
    return result;
  }
  void release(void* freed) noexcept override {
    memory.remove(freed);
    simulated_device::release(freed);
  }
  void* allocate_pinned(std::size_t bytes) override {
    auto* const result = simulated_device::allocate_pinned(bytes);
    pinned.add(result, bytes);
    return result;
  }
  void release_pinned(void* freed) noexcept override {
    pinned.remove(freed);
    simulated_device::release_pinned(freed);
  }

  struct usage {
    void add(void* x, std::size_t bytes) {
      sizes[x] = bytes;
      now += bytes;
      most = std::max(most, now);
    }
    void remove(void* x) {
      now -= sizes[x];
      sizes.erase(x);
    }
    std::map<void*, std::size_t> sizes;
    std::size_t now = 0;
    std::size_t most = 0;
  };
  usage memory, pinned;
};

/// An updater of the CPU and one of the GPU, each with its own weights. On the GPU, an update has
/// pieces of at most 40 elements.
struct pair_of_updaters {
  pair_of_updaters(const optimizer& how, std::size_t n, bool moment_apart,
                   std::optional<std::uint64_t> order)
    : rule(how), apart(moment_apart), parts(parts_of(how, n)),
      cpu(make_cpu_updater(sizes_of(how, n, apart))),
      gpu(std::make_shared<simulated_device>(order), sizes_of(how, n, apart), 40),
      weights(random_floats(n, "w")), moment(apart ? n : 0), other_moment(moment) {}

  /// @param only if it is not null, the gradient is 0 in all other elements
  template <class Make>
  void update(std::uint64_t step, Make make, const range_list* only = nullptr) {
    auto g = random_floats(weights.size(), "g " + std::to_string(step));
    if (only != nullptr)
      for (std::size_t i = 0; i < g.size(); ++i)
        if (std::ranges::none_of(*only, [i](auto& x) { return x.contains(i); }))
          g[i] = 0;
    std::vector<float> next(weights.size());
    range_update x{.weights = weights,
                   .gradient = g,
                   .updated = next,
                   .parts = parts,
                   .mean = 0.25,
                   .scale = 0.2,
                   .step = step,
                   .moment = moment,
                   .moment_step = apart ? step : 0,
                   .look_ahead = apart};
    make(*cpu, x);
    // The updater of the GPU copies the new weights to one of two slots in host memory. The slots
    // alternate.
    auto& to = slots[step % 2];
    to.resize(weights.size());
    x.weights = slots[(step + 1) % 2].empty() ? std::span<const float>{weights}
                                              : std::span<const float>{slots[(step + 1) % 2]};
    x.updated = to;
    x.moment = other_moment;
    x.only = only;
    if (only != nullptr)
      std::ranges::copy(x.weights, to.begin());
    make(gpu, x);
    weights = next;
  }

  void check(double tolerance) {
    if (last > 0)
      compare(slots[last % 2], weights, tolerance);
    compare(other_moment, moment, tolerance);
    for (std::size_t i = 0; i < rule.slots() - (apart ? 1 : 0); ++i) {
      const auto a = gpu.state(i);
      const auto b = cpu->state(i);
      compare({a.begin(), a.end()}, {b.begin(), b.end()}, tolerance);
    }
  }

  static void compare(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
    if (tolerance == 0)
      BOOST_TEST(same_bits(a, b));
    else
      check_close(a, as_doubles(b), tolerance, tolerance, "lamb");
  }

  optimizer rule;
  bool apart;
  std::vector<update_part> parts;
  std::unique_ptr<device_updater> cpu;
  cuda::updater gpu;
  std::vector<float> weights, moment, other_moment;
  std::vector<float> slots[2];
  std::uint64_t last = 0;
};

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_updater)

// Only some elements change. Most lists are short enough to be packed. One of the others has too
// many elements, and one has too many ranges.
BOOST_AUTO_TEST_CASE(updates_of_some_elements) {
  with_all_orders([](std::optional<std::uint64_t> order) {
    const optimizer rules[] = {
      {.kind = optimizer_kind::sgd, .momentum = 0},
      {.kind = optimizer_kind::adagrad, .momentum = 0},
      {.kind = optimizer_kind::adamw, .weight_decay = 0.01F, .lazy = true}};
    for (const auto& rule : rules) {
      constexpr std::size_t n = 997;
      pair_of_updaters both(rule, n, false, order);
      for (auto& part : both.parts)
        part.rule.weight_decay = rule.weight_decay;
      // All lists contain the layer state, which every update changes.
      const range state{n - 60, n - 55};
      auto many = scattered(n / 8);
      many.push_back(state);
      const range_list lists[] = {{{0, 3}, {9, 12}, {500, 517}, state},
                                  {{n - 61, n}},
                                  {{3, 4}, state},
                                  {state},
                                  {{8, 20}, {22, 23}, {n - 60, n - 50}},
                                  {{0, n - 3}},
                                  many};
      for (std::uint64_t step = 1; step <= 12; ++step) {
        const bool all = step % 5 == 0; // an update of all elements between others
        both.update(
          step, [](device_updater& x, const range_update& how) { x.apply(how); },
          all ? nullptr : &lists[step % std::size(lists)]);
        both.last = step;
        both.check(0);
      }
    }
  });
}

// All bits are the same, except for lamb: its norms are added up in another order.
BOOST_AUTO_TEST_CASE(updates_have_the_bits_of_the_cpu) {
  with_all_orders([](std::optional<std::uint64_t> order) {
    for (int kind = 0; kind <= static_cast<int>(optimizer_kind::lamb); ++kind)
      for (const bool apart : {false, true})
        for (const std::size_t n : {100, 257, 997}) {
          optimizer rule;
          rule.kind = static_cast<optimizer_kind>(kind);
          if (apart && !rule.moment_slot())
            continue;
          pair_of_updaters both(rule, n, apart, order);
          for (std::uint64_t step = 1; step <= 4; ++step) {
            both.update(step, [](device_updater& x, const range_update& how) { x.apply(how); });
            both.last = step;
            both.check(rule.by_tensor() ? 1e-6 : 0);
          }
        }
  });
}

// A staged update changes nothing before it is published. Some staged updates are dropped.
BOOST_AUTO_TEST_CASE(staged_updates) {
  with_all_orders([](std::optional<std::uint64_t> order) {
    for (const auto kind : {optimizer_kind::sgd, optimizer_kind::momentum, optimizer_kind::adam}) {
      optimizer rule;
      rule.kind = kind;
      pair_of_updaters both(rule, 300, false, order);
      both.gpu.reserve_stage();
      for (std::uint64_t step = 1; step <= 4; ++step) {
        std::vector<float> lost(300);
        const auto g = random_floats(300, "lost");
        const auto& from = step == 1 ? both.weights : both.slots[(step + 1) % 2];
        range_update dropped{.weights = from, .gradient = g, .updated = lost, .parts = both.parts};
        both.gpu.stage(dropped);
        both.update(step, [](device_updater& x, const range_update& how) {
          x.stage(how);
          x.publish();
        });
        both.last = step;
        both.check(0);
      }
    }
  });
}

// The test model has two rules and a tensor of statistics, so each piece has up to three launches.
// The first staged update also copies the frozen weights and their state, and so does the first
// update after the host has changed the state.
BOOST_AUTO_TEST_CASE(launches_of_staged_updates) {
  optimizer rule;
  rule.kind = optimizer_kind::adam;
  pair_of_updaters both(rule, 300, false, std::nullopt);
  const auto launches_of = [&](std::uint64_t step) {
    const auto before = launches();
    both.update(step, [](device_updater& x, const range_update& how) {
      x.stage(how);
      x.publish();
    });
    both.last = step;
    both.check(0);
    return launches() - before;
  };
  const auto first = launches_of(1);
  BOOST_TEST(launches_of(2) == first - 2);
  BOOST_TEST(launches_of(3) == first - 2);
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const std::vector<float> values(300, 0.5F + static_cast<float>(slot));
    both.gpu.restore(slot, values);
    both.cpu->restore(slot, values);
  }
  BOOST_TEST(launches_of(4) == first);
  BOOST_TEST(launches_of(5) == first - 2);
}

BOOST_AUTO_TEST_CASE(state_can_be_restored) {
  with_all_orders([](std::optional<std::uint64_t> order) {
    optimizer rule;
    rule.kind = optimizer_kind::adam;
    pair_of_updaters both(rule, 300, false, order);
    for (std::size_t slot = 0; slot < 2; ++slot) {
      auto values = random_floats(300, "state");
      for (auto& x : values)
        x = std::abs(x);
      both.gpu.restore(slot, values);
      both.cpu->restore(slot, values);
    }
    both.check(0);
    both.update(1, [](device_updater& x, const range_update& how) { x.apply(how); });
    both.last = 1;
    both.check(0);
    // The host has changed its weights in place.
    both.weights = random_floats(300, "other");
    std::ranges::copy(both.weights, both.slots[1].begin());
    both.gpu.forget_weights();
    both.update(2, [](device_updater& x, const range_update& how) { x.apply(how); });
    both.last = 2;
    both.check(0);
  });
}

BOOST_AUTO_TEST_CASE(memory_is_known_before_it_is_allocated) {
  for (const auto kind : {optimizer_kind::sgd, optimizer_kind::adam, optimizer_kind::lamb})
    for (const bool apart : {false, true})
      for (const bool staged : {false, true}) {
        optimizer rule;
        rule.kind = kind;
        if (apart && !rule.moment_slot())
          continue;
        const auto gpu = std::make_shared<simulated_device>();
        auto sizes = sizes_of(rule, 300, apart);
        sizes.whole = true;
        cuda::updater there(gpu, sizes);
        if (staged)
          there.reserve_stage();
        BOOST_TEST(gpu->allocated_bytes() == cuda::updater::memory_bytes(sizes, staged));
        BOOST_TEST(gpu->pinned_bytes() == cuda::updater::pinned_bytes(sizes));
      }
}

// The memory for positions grows, but only up to a known size. An update of more ranges updates all
// elements. With updater_sizes::whole, there is no such memory.
BOOST_AUTO_TEST_CASE(memory_of_updates_of_some_elements) {
  constexpr std::size_t n = 800;
  const optimizer rule{.kind = optimizer_kind::sgd, .momentum = 0};
  const std::vector<update_part> parts{{{0, n}, parameter_kind::trainable, rule, 0.1, 0}};
  for (const bool whole : {false, true}) {
    auto sizes = sizes_of(rule, n, false);
    sizes.whole = whole;
    const auto gpu = std::make_shared<measured_device>();
    cuda::updater there(gpu, sizes);
    auto weights = random_floats(n, "w");
    const auto g = random_floats(n, "g");
    for (const std::size_t count : {1, 60, 90, 100, 101, 200}) {
      const auto only = scattered(count);
      range_update x{.weights = weights, .gradient = g, .updated = weights, .parts = parts};
      x.only = &only;
      there.apply(x);
    }
    BOOST_TEST(gpu->memory.most == cuda::updater::memory_bytes(sizes, false));
    BOOST_TEST(gpu->pinned.most == cuda::updater::pinned_bytes(sizes));
    BOOST_TEST(gpu->memory.most == 2 * sizeof(float) * n + (whole ? 0 : n));
  }
}

BOOST_AUTO_TEST_CASE(no_parameters) {
  const auto gpu = std::make_shared<simulated_device>();
  cuda::updater there(gpu, {0, 2, false, false});
  there.apply({});
  there.stage({});
  there.publish();
  there.restore(0, {});
  BOOST_TEST(there.state(1).empty());
  BOOST_TEST(gpu->allocations() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
