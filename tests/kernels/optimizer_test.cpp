#include "kernels/optimizer.hpp"

#include "kernels/range.hpp"
#include "numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr optimizer rules[] = {
  {optimizer_kind::sgd, 0, 0},         {optimizer_kind::sgd, 0, 0.01F},
  {optimizer_kind::momentum, 0.9F, 0}, {optimizer_kind::momentum, 0.8F, 0.01F},
  {optimizer_kind::nesterov, 0.9F, 0}, {optimizer_kind::nesterov, 0.8F, 0.01F},
};

/// PyTorch's definition, written down separately: one parameter, one step.
void reference_step(const optimizer& rule, double rate, double scale, double g, double& w,
                    double& v) {
  double d = scale * g;
  d = d + double{rule.weight_decay} * w;
  if (rule.kind != optimizer_kind::sgd) {
    v = double{rule.momentum} * v + d;
    d = rule.kind == optimizer_kind::nesterov ? d + double{rule.momentum} * v : v;
  }
  w = w - rate * d;
}

template <class T>
std::vector<T> values(std::size_t n, const char* name) {
  const auto x = random_values(n, name);
  return {x.begin(), x.end()};
}

/// 100 steps with gradients that depend on the weights.
template <class T>
void check_steps(const optimizer& rule, std::size_t n, double tolerance) {
  auto w = values<T>(n, "w");
  std::vector<T> next(n);
  std::vector<T> state(rule.slots() * n);
  std::vector<T> g(n);
  std::vector<double> expected(w.begin(), w.end());
  std::vector<double> velocity(n);
  const auto pull = random_values(n, "pull");
  for (int step = 0; step < 100; ++step) {
    const double rate = 0.01 / (1 + step);
    for (std::size_t i = 0; i < n; ++i) {
      g[i] = static_cast<T>(pull[i] * 64 + std::sin(step + static_cast<double>(i)));
      reference_step(rule, rate, 1.0 / 64, static_cast<double>(g[i]), expected[i], velocity[i]);
    }
    update<T>(rule, {w, g, state, next, rate, 1.0 / 64});
    std::swap(w, next);
  }
  check_close(std::span<const T>(w), expected, tolerance, tolerance, "weights after 100 steps");
}

} // namespace

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE(a_hundred_steps) {
  for (const auto& rule : rules)
    for (std::size_t n : {0, 1, 7, 8, 9, 1023, 1024, 1031}) {
      // The scalars of the rule are floats; rate and scale are exact in double only.
      check_steps<double>(rule, n, 1e-12);
      check_steps<float>(rule, n, 2e-6);
    }
}

BOOST_AUTO_TEST_CASE(slices_have_the_bits_of_the_whole) {
  const std::size_t n = 5003;
  const auto w = values<float>(n, "w");
  const auto g = values<float>(n, "g");
  const auto v = values<float>(n, "v");
  for (const auto& rule : rules) {
    auto state = rule.slots() > 0 ? v : std::vector<float>();
    std::vector<float> all(n);
    update<float>(rule, {w, g, state, all, 0.01, 0.1});
    for (std::size_t parts : {2, 3, 7, 600, 5003}) {
      auto sliced_state = rule.slots() > 0 ? v : std::vector<float>();
      guarded<float> sliced(n, 5);
      for (auto part : split_evenly(n, parts)) {
        auto cut = [part](auto& x) { return std::span(x).subspan(part.begin, part.size()); };
        update<float>(rule,
                      {cut(w), cut(g), rule.slots() > 0 ? cut(sliced_state) : std::span<float>(),
                       sliced.get().subspan(part.begin, part.size()), 0.01, 0.1});
      }
      BOOST_TEST(sliced.intact());
      BOOST_TEST(same_bits(sliced.get(), all));
      BOOST_TEST(same_bits(sliced_state, state));
    }
  }
}

BOOST_AUTO_TEST_CASE(in_place_and_streaming_give_the_same_bits) {
  const std::size_t n = (1U << 20) + 13; // beyond the size from which results are streamed
  const auto w = values<float>(n, "w");
  const auto g = values<float>(n, "g");
  for (const auto& rule : rules) {
    std::vector<float> state(rule.slots() * n, 0.25F);
    auto in_place = w;
    update<float>(rule, {in_place, g, state, in_place, 0.01, 0.1});
    std::vector<float> again(rule.slots() * n, 0.25F);
    guarded<float> out(n, 3);
    update<float>(rule, {w, g, again, out.get(), 0.01, 0.1});
    BOOST_TEST(out.intact());
    BOOST_TEST(same_bits(out.get(), in_place));
    BOOST_TEST(same_bits(again, state));
  }
}

BOOST_AUTO_TEST_CASE(nan_and_infinity_propagate) {
  for (const auto& rule : rules) {
    std::vector<float> w(20, 1.0F);
    std::vector<float> g(20, 1.0F);
    std::vector<float> state(rule.slots() * 20);
    g[3] = std::numeric_limits<float>::quiet_NaN();
    g[17] = std::numeric_limits<float>::infinity();
    update<float>(rule, {w, g, state, w, 0.1, 1});
    BOOST_TEST(std::isnan(w[3]));
    BOOST_TEST(w[17] == -std::numeric_limits<float>::infinity());
    BOOST_TEST(std::isfinite(w[4]));
  }
}

BOOST_AUTO_TEST_CASE(velocities_do_not_become_denormal) {
  const troupe::optimizer rule{optimizer_kind::momentum, 0.5F, 0};
  std::vector<float> w(9, 1.0F);
  std::vector<float> g(9, 0.0F);
  std::vector<float> state(9, 1.0F);
  for (int i = 0; i < 200; ++i)
    update<float>(rule, {w, g, state, w, 0.1, 1});
  BOOST_TEST(state == std::vector<float>(9, 0.0F), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(sizes_must_fit) {
  std::vector<float> three(3);
  std::vector<float> four(4);
  BOOST_CHECK_THROW(update<float>({}, {three, four, {}, three, 0.1, 1}), std::invalid_argument);
  BOOST_CHECK_THROW(update<float>({}, {three, three, {}, four, 0.1, 1}), std::invalid_argument);
  BOOST_CHECK_THROW(update<float>({}, {three, three, three, three, 0.1, 1}), std::invalid_argument);
  BOOST_CHECK_THROW(
    update<float>({optimizer_kind::momentum, 0.9F, 0}, {three, three, {}, three, 0.1, 1}),
    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
