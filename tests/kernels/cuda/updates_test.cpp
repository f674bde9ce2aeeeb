#include "kernels/cuda/updates.hpp"

#include "kernels/cuda/reductions.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Rules of each kind: one without further options; one with weight decay and clipping; one with
/// weight decay, clipping and l1, but without momentum; and this one again, but lazy.
std::vector<optimizer> rules() {
  std::vector<optimizer> result;
  for (int kind = 0; kind <= static_cast<int>(optimizer_kind::lamb); ++kind) {
    optimizer rule;
    rule.kind = static_cast<optimizer_kind>(kind);
    result.push_back(rule);
    rule.weight_decay = 0.01F;
    rule.clip_value = 0.4;
    result.push_back(rule);
    rule.l1 = 0.02;
    rule.momentum = 0;
    result.push_back(rule);
    rule.lazy = true;
    if (!rule.by_tensor())
      result.push_back(rule);
  }
  return result;
}

/// Random numbers, every third of which is 0.
std::vector<float> gradient_of_step(std::size_t n, std::uint64_t step) {
  auto result = random_floats(n, "gradient " + std::to_string(step));
  for (auto i = static_cast<std::size_t>(step % 3); i < n; i += 3)
    result[i] = 0;
  return result;
}

std::string name_of(const optimizer& rule) {
  return "rule " + std::to_string(static_cast<int>(rule.kind)) + ", l1 " + std::to_string(rule.l1)
    + (rule.lazy ? ", lazy" : "");
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_updates)

BOOST_AUTO_TEST_CASE(all_rules_have_the_bits_of_the_cpu) {
  const device_array<double> space(cuda::sum_space);
  for (const auto& rule : rules())
    for (const bool look_ahead : {false, true})
      for (const std::size_t n : {0, 1, 255, 257, 997}) {
        auto w = random_floats(n, "w");
        std::vector<float> state(rule.slots() * n);
        const device_array<float> dw(w);
        const device_array<float> ds(state);
        for (std::uint64_t step = 1; step <= 3; ++step) {
          const auto g = gradient_of_step(n, step);
          const device_array<float> dg(g);
          update<float>(rule,
                        {.weights = w,
                         .gradient = g,
                         .state = state,
                         .updated = w,
                         .rate = 0.1,
                         .scale = 0.5,
                         .step = step,
                         .look_ahead = look_ahead});
          cuda::update({}, rule,
                       {.weights = {dw.data(), n},
                        .gradient = {dg.data(), n},
                        .state = {ds.data(), state.size()},
                        .updated = {dw.data(), n},
                        .rate = 0.1,
                        .scale = 0.5,
                        .step = step,
                        .look_ahead = look_ahead},
                       space.data());
        }
        if (rule.by_tensor()) {
          // The norms are added up in a different order, in double. So the trust ratio differs in
          // its last bit, and the weights differ by this fraction of a step. In the first step, the
          // state does not depend on the trust ratio.
          check_close(dw.values(), as_doubles(w), 1e-6, 1e-7, name_of(rule));
          check_close(ds.values(), as_doubles(state), 1e-6, 1e-7, name_of(rule));
        } else {
          BOOST_TEST(same_bits(dw.values(), w), name_of(rule));
          BOOST_TEST(same_bits(ds.values(), state), name_of(rule));
        }
      }
}

BOOST_AUTO_TEST_CASE(a_moment_that_is_kept_apart) {
  const std::size_t n = 300;
  const std::size_t stride = 310;
  optimizer rule;
  rule.kind = optimizer_kind::adam;
  const auto w = random_floats(n, "w");
  const auto g = random_floats(n, "g");
  auto moment = random_floats(n, "m");
  std::vector<float> state(n, 0.5F);
  std::vector<float> updated(n);
  const device_array<float> dw(w);
  const device_array<float> dg(g);
  const device_array<float> dm(moment);
  const device_array<float> ds(state);
  const device_array<float> out(n);
  update<float>(rule, {w, g, state, updated, 0.1, 1, 4, stride, moment, 2, false});
  cuda::update({}, rule,
               {{dw.data(), n},
                {dg.data(), n},
                {ds.data(), n},
                {out.data(), n},
                0.1,
                1,
                4,
                stride,
                {dm.data(), n},
                2,
                false},
               nullptr);
  BOOST_TEST(same_bits(out.values(), updated));
  BOOST_TEST(same_bits(dm.values(), moment));
  BOOST_TEST(same_bits(ds.values(), state));
}

// The new state is written to other memory, and the old state stays as it is.
BOOST_AUTO_TEST_CASE(updates_out_of_place) {
  const device_array<double> space(cuda::sum_space);
  for (const auto& rule : rules())
    for (const std::size_t n : {1, 255, 257, 997}) {
      const auto w = random_floats(n, "w");
      const auto g = random_floats(n, "g");
      const std::vector<float> old(rule.slots() * n, 0.25F);
      std::vector<float> state(old.size());
      std::vector<float> updated(n);
      const device_array<float> dw(w), dg(g), from(old), to(old.size()), out(n);
      update<float>(rule,
                    {.weights = w,
                     .gradient = g,
                     .state = state,
                     .updated = updated,
                     .rate = 0.1,
                     .step = 3,
                     .old_state = old});
      cuda::update({}, rule,
                   {.weights = {dw.data(), n},
                    .gradient = {dg.data(), n},
                    .state = {to.data(), state.size()},
                    .updated = {out.data(), n},
                    .rate = 0.1,
                    .step = 3,
                    .old_state = {from.data(), old.size()}},
                   space.data());
      BOOST_TEST(same_bits(from.values(), old), name_of(rule));
      if (rule.by_tensor())
        check_close(out.values(), as_doubles(updated), 1e-6, 1e-7, name_of(rule));
      else
        BOOST_TEST(same_bits(out.values(), updated), name_of(rule));
      BOOST_TEST(same_bits(to.values(), state), name_of(rule));
    }
}

namespace {

/// Ranges on the host and on the device, each with an update by the CPU and one by the GPU.
struct several_ranges {
  struct one {
    one(const optimizer& how, std::size_t n, std::size_t shift, const std::string& name)
      : rule(how), w(random_floats(n, name)), g(random_floats(n, name + " g")),
        old(how.slots() * n, 0.25F), state(old.size()), updated(n), dw(shifted(w, shift)), dg(g),
        from(old), to(old.size()), out(n), shift(shift) {}

    static std::vector<float> shifted(std::vector<float> x, std::size_t by) {
      x.insert(x.begin(), by, 0);
      return x;
    }

    optimizer rule;
    std::vector<float> w, g, old, state, updated;
    device_array<float> dw, dg, from, to, out;
    std::size_t shift;
  };

  void add(const optimizer& rule, std::size_t n, std::size_t shift) {
    all.push_back(std::make_unique<one>(rule, n, shift, "range " + std::to_string(all.size())));
  }

  std::vector<std::unique_ptr<one>> all;
};

} // namespace

// Some ranges are not aligned for packs. The ranges have two rules, whose updates need two launches
// for the first 48 ranges of each rule.
BOOST_AUTO_TEST_CASE(several_ranges_in_one_launch) {
  for (const auto& rule : rules()) {
    several_ranges ranges;
    auto other = rule;
    other.weight_decay = 0.5F;
    for (const std::size_t shift : {0, 1})
      for (const auto n : {0, 1, 31, 33, 255, 1023, 1024, 1025, 2053})
        for (const auto& each : {rule, other})
          ranges.add(each, static_cast<std::size_t>(n), shift);
    for (std::size_t i = 0; i < 32; ++i)
      ranges.add(rule, 5, 0);
    in_all_orders([&] {
      std::vector<cuda::range_step> steps;
      for (const auto& x : ranges.all) {
        const auto n = x->w.size();
        update_arguments<float> arguments{.weights = x->w,
                                          .gradient = x->g,
                                          .state = x->state,
                                          .updated = x->updated,
                                          .rate = 0.1,
                                          .scale = 0.5,
                                          .step = 3,
                                          .old_state = x->old};
        if (!rule.by_tensor())
          update<float>(x->rule, arguments);
        arguments.weights = {x->dw.data() + x->shift, n};
        arguments.gradient = {x->dg.data(), n};
        arguments.state = {x->to.data(), x->state.size()};
        arguments.updated = {x->out.data(), n};
        arguments.old_state = {x->from.data(), x->old.size()};
        steps.push_back({x->rule, arguments});
      }
      if (rule.by_tensor()) {
        BOOST_CHECK_THROW(cuda::update({}, steps), std::invalid_argument);
        return;
      }
      const auto before = launches();
      cuda::update({}, steps);
      BOOST_TEST(launches() == before + 3);
      for (const auto& x : ranges.all) {
        BOOST_TEST(same_bits(x->out.values(), x->updated), name_of(rule));
        BOOST_TEST(same_bits(x->to.values(), x->state), name_of(rule));
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(ranges_are_packed) {
  with_all_devices([](simulated_device& gpu) { check_packing(gpu); });
}

// Tensors of all sizes, in two launches because there are two decays.
BOOST_AUTO_TEST_CASE(statistics) {
  std::vector<std::vector<float>> expected;
  std::vector<std::unique_ptr<device_array<float>>> arrays;
  std::vector<cuda::statistics_step> steps;
  for (const auto n : element_counts)
    for (const double decay : {0.1, 0.3}) {
      auto w = random_floats(n, "w");
      const auto sum = random_floats(n, "sum");
      const auto& dw = *arrays.emplace_back(std::make_unique<device_array<float>>(w));
      const auto& ds = *arrays.emplace_back(std::make_unique<device_array<float>>(sum));
      update_statistics(w, sum, 0.125, decay, w);
      steps.push_back({{dw.data(), n}, {ds.data(), n}, 0.125, decay, {dw.data(), n}});
      expected.push_back(w);
    }
  const auto before = launches();
  cuda::update_statistics({}, steps);
  BOOST_TEST(launches() == before + 2);
  for (std::size_t i = 0; i < expected.size(); ++i)
    BOOST_TEST(same_bits(arrays[2 * i]->values(), expected[i]));
}

BOOST_AUTO_TEST_CASE(several_ranges_on_a_device) {
  with_all_devices([](simulated_device& gpu) { check_updates(gpu); });
}

BOOST_AUTO_TEST_CASE(updates_of_some_elements_on_a_device) {
  with_all_orders([](std::optional<std::uint64_t> order) {
    check_updates_of_some(std::make_shared<simulated_device>(order));
  });
}

BOOST_AUTO_TEST_CASE(copies_of_several_ranges) {
  std::vector<std::vector<float>> expected;
  std::vector<std::unique_ptr<device_array<float>>> from, to;
  std::vector<cuda::range_copy> copies;
  for (std::size_t i = 0; i < 5; ++i) // 55 ranges
    for (const auto n : element_counts) {
      expected.push_back(random_floats(n, "range " + std::to_string(expected.size())));
      from.push_back(std::make_unique<device_array<float>>(expected.back()));
      to.push_back(std::make_unique<device_array<float>>(n));
      copies.push_back({from.back()->data(), to.back()->data(), n});
    }
  const auto before = launches();
  cuda::copy_ranges({}, copies);
  BOOST_TEST(launches() == before + 2);
  for (std::size_t i = 0; i < expected.size(); ++i)
    BOOST_TEST(same_bits(to[i]->values(), expected[i]));
}

BOOST_AUTO_TEST_CASE(sizes_that_differ_are_refused) {
  const device_array<float> x(4);
  const std::span<float> four{x.data(), 4};
  const std::span<float> three{x.data(), 3};
  optimizer rule;
  BOOST_CHECK_THROW(cuda::update({}, rule, {four, three, {}, four}, nullptr),
                    std::invalid_argument);
  rule.kind = optimizer_kind::momentum;
  BOOST_CHECK_THROW(cuda::update({}, rule, {four, four, three, four}, nullptr),
                    std::invalid_argument);
  update_arguments<float> other_state{four, four, four, four};
  other_state.old_state = three;
  BOOST_CHECK_THROW(cuda::update({}, rule, other_state, nullptr), std::invalid_argument);
  const cuda::range_step step{optimizer{}, {four, three, {}, four}};
  BOOST_CHECK_THROW(cuda::update({}, {&step, 1}), std::invalid_argument);
  const cuda::statistics_step statistics{four, three, 1, 1, four};
  BOOST_CHECK_THROW(cuda::update_statistics({}, {&statistics, 1}), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
