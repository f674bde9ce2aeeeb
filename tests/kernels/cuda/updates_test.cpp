#include "kernels/cuda/updates.hpp"

#include "kernels/cuda/reductions.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three rules of each kind: one without further options; one with weight decay and clipping; one
/// with weight decay, clipping and l1, but without momentum.
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
  }
  return result;
}

std::string name_of(const optimizer& rule) {
  return "rule " + std::to_string(static_cast<int>(rule.kind)) + ", l1 " + std::to_string(rule.l1);
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
          const auto g = random_floats(n, "gradient " + std::to_string(step));
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

BOOST_AUTO_TEST_CASE(named_rows_alone) {
  const std::size_t rows = 40;
  const std::size_t columns = 33;
  const std::vector<std::int32_t> ids{39, 0, 7, 8};
  for (const auto& rule : rules()) {
    auto w = random_floats(rows * columns, "w");
    std::vector<float> state(rule.slots() * w.size(), 0.25F);
    const auto g = random_floats(ids.size() * columns, "g");
    const device_array<float> dw(w);
    const device_array<float> ds(state);
    const device_array<float> dg(g);
    const device_array<std::int32_t> di(ids);
    const update_arguments<float> arguments{.weights = {dw.data(), w.size()},
                                            .gradient = {dg.data(), g.size()},
                                            .state = {ds.data(), state.size()},
                                            .updated = {dw.data(), w.size()},
                                            .rate = 0.1};
    const auto run = [&] {
      cuda::update_rows({}, rule, arguments, {di.data(), ids.size()}, columns);
    };
    if (rule.by_tensor()) {
      BOOST_CHECK_THROW(run(), std::invalid_argument);
      continue;
    }
    run();
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const auto begin = static_cast<std::size_t>(ids[k]) * columns;
      const std::span row{w.data() + begin, columns};
      const auto of_state = rule.slots() == 0
        ? std::span<float>{}
        : std::span{state}.subspan(begin, (rule.slots() - 1) * w.size() + columns);
      update<float>(rule,
                    {.weights = row,
                     .gradient = {g.data() + k * columns, columns},
                     .state = of_state,
                     .updated = row,
                     .rate = 0.1,
                     .stride = w.size()});
    }
    BOOST_TEST(same_bits(dw.values(), w), name_of(rule));
    BOOST_TEST(same_bits(ds.values(), state), name_of(rule));
  }
}

BOOST_AUTO_TEST_CASE(statistics) {
  for (const auto n : element_counts) {
    auto w = random_floats(n, "w");
    const auto sum = random_floats(n, "sum");
    const device_array<float> dw(w);
    const device_array<float> ds(sum);
    update_statistics(w, sum, 0.125, 0.1, w);
    cuda::update_statistics({}, {dw.data(), n}, {ds.data(), n}, 0.125, 0.1, {dw.data(), n});
    BOOST_TEST(same_bits(dw.values(), w));
  }
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
  BOOST_CHECK_THROW(cuda::update_statistics({}, four, three, 1, 1, four), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
