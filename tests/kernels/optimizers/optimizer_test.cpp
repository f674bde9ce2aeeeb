#include "kernels/optimizers/optimizer.hpp"

#include "kernels/cpu/reduce.hpp"
#include "kernels/range.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/folders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr optimizer rules[] = {
  {optimizer_kind::sgd, 0, 0},
  {optimizer_kind::sgd, 0, 0.01F},
  {optimizer_kind::momentum, 0.9F, 0},
  {optimizer_kind::momentum, 0.8F, 0.01F},
  {optimizer_kind::nesterov, 0.9F, 0},
  {optimizer_kind::nesterov, 0.8F, 0.01F},
  {optimizer_kind::adagrad, 0, 0.01F},
  {.kind = optimizer_kind::adagrad, .momentum = 0, .epsilon = 1e-2},
  {optimizer_kind::rmsprop, 0, 0.01F},
  {.kind = optimizer_kind::rmsprop, .momentum = 0.9F, .smoothing = 0.9, .epsilon = 1e-3},
  {optimizer_kind::adam, 0, 0.01F},
  {.kind = optimizer_kind::adam, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3},
  {optimizer_kind::adamw, 0, 0.1F},
  {.kind = optimizer_kind::adamw, .clip_value = 0.5},
  {.kind = optimizer_kind::nesterov, .weight_decay = 0.01F, .clip_value = 0.5},
  {.kind = optimizer_kind::sgd, .momentum = 0, .l1 = 0.01},
  {.kind = optimizer_kind::adam, .weight_decay = 0.01F, .clip_value = 0.5, .l1 = 0.01},
  {.kind = optimizer_kind::sgd, .weight_decay = 0.01F, .lazy = true},
  {.kind = optimizer_kind::nesterov, .weight_decay = 0.01F, .l1 = 0.01, .lazy = true},
  {.kind = optimizer_kind::adagrad, .l1 = 0.01, .lazy = true},
  {.kind = optimizer_kind::rmsprop, .momentum = 0.9F, .lazy = true},
  {.kind = optimizer_kind::adam,
   .weight_decay = 0.01F,
   .clip_value = 0.5,
   .l1 = 0.01,
   .lazy = true},
  {.kind = optimizer_kind::adamw, .weight_decay = 0.1F, .lazy = true},
};

/// True if this element of the gradient is 0 in this step.
bool is_zero(const optimizer& rule, std::size_t i, std::size_t step) {
  return rule.lazy && (i + step) % 3 == 0;
}

/// One parameter and its state. A step follows the definitions of PyTorch, without the code of this
/// project.
struct reference {
  double w = 0;
  double first = 0;
  double second = 0;
  /// True: a step uses the moment that one more update with the same gradient would give
  /// (Nesterov's look-ahead).
  bool look_ahead = false;

  void step(const optimizer& rule, double rate, double g, int t) {
    if (rule.lazy && g == 0)
      return;
    if (rule.clip_value > 0)
      g = std::clamp(g, -rule.clip_value, rule.clip_value);
    const double sign = w > 0 ? 1 : w < 0 ? -1 : 0;
    if (rule.kind == optimizer_kind::adamw)
      w *= 1 - rate * double{rule.weight_decay};
    else
      g += double{rule.weight_decay} * w;
    g += rule.l1 * sign;
    w -= rate * direction(rule, g, t);
  }

  double direction(const optimizer& rule, double g, int t) {
    switch (rule.kind) {
    case optimizer_kind::sgd:
      return g;
    case optimizer_kind::momentum:
      first = double{rule.momentum} * first + g;
      return look_ahead ? g + double{rule.momentum} * first : first;
    case optimizer_kind::nesterov:
      first = double{rule.momentum} * first + g;
      return g + double{rule.momentum} * first;
    case optimizer_kind::adagrad:
      first += g * g;
      return g / (std::sqrt(first) + rule.epsilon);
    case optimizer_kind::rmsprop:
      first = rule.smoothing * first + (1 - rule.smoothing) * g * g;
      second = double{rule.momentum} * second + g / (std::sqrt(first) + rule.epsilon);
      return second
        + (look_ahead ? g / (std::sqrt(first) + rule.epsilon) - (1 - double{rule.momentum}) * second
                      : 0);
    case optimizer_kind::adam:
    case optimizer_kind::adamw:
      first = rule.beta1 * first + (1 - rule.beta1) * g;
      second = rule.beta2 * second + (1 - rule.beta2) * g * g;
      return (look_ahead
                ? (rule.beta1 * first + (1 - rule.beta1) * g) / (1 - std::pow(rule.beta1, t + 1))
                : first / (1 - std::pow(rule.beta1, t)))
        / (std::sqrt(second / (1 - std::pow(rule.beta2, t))) + rule.epsilon);
    case optimizer_kind::lamb: // not element by element
      break;
    }
    return 0;
  }
};

template <class T>
std::vector<T> values(std::size_t n, const char* name) {
  const auto x = random_values(n, name);
  return {x.begin(), x.end()};
}

/// Compares 100 steps with the reference. The gradients depend on the weights.
template <class T>
void check_steps(const optimizer& rule, std::size_t n, double tolerance, bool look_ahead = false) {
  auto w = values<T>(n, "w");
  std::vector<T> next(n);
  // With look_ahead, the moment is not stored with the other state.
  const bool apart = look_ahead && rule.moment_slot().has_value();
  std::vector<T> state((rule.slots() - (apart ? 1 : 0)) * n);
  std::vector<T> moment(apart ? n : 0);
  std::vector<T> g(n);
  std::vector<reference> parameters(n);
  for (std::size_t i = 0; i < n; ++i) {
    parameters[i].w = static_cast<double>(w[i]);
    parameters[i].look_ahead = look_ahead;
  }
  const auto pull = random_values(n, "pull");
  for (int step = 0; step < 100; ++step) {
    const double rate = 0.01 / (1 + step);
    for (std::size_t i = 0; i < n; ++i) {
      g[i] = static_cast<T>(pull[i] * 64 + std::sin(step + static_cast<double>(i)));
      if (is_zero(rule, i, static_cast<std::size_t>(step)))
        g[i] = 0;
      parameters[i].step(rule, rate, static_cast<double>(g[i]) / 64, step + 1);
    }
    update_arguments<T> x{w, g, state, next, rate, 1.0 / 64, static_cast<std::uint64_t>(step + 1)};
    x.moment = moment;
    x.look_ahead = look_ahead;
    update<T>(rule, x);
    std::swap(w, next);
  }
  std::vector<double> expected;
  for (auto& x : parameters)
    expected.push_back(x.w);
  check_close(std::span<const T>(w), expected, tolerance, tolerance, "weights after 100 steps");
}

/// Compares two ways to make an update, bit for bit. The first gets the sum of two gradients. The
/// second gets both gradients and adds them up, keeps the old state, and checks for numbers that
/// are not finite.
void check_terms(const optimizer& rule, std::size_t n, std::size_t bad) {
  auto w = values<float>(n, "w");
  auto a = values<float>(n, "a");
  auto b = values<float>(n, "b");
  // Denormal numbers must count as zero. This element shows it, because its weight and its state
  // are zero.
  const auto tiny = n / 3;
  w[tiny] = 0;
  a[tiny] = 9e-39F;
  b[tiny] = 1e-36F;
  for (std::size_t i = 0; i < n; ++i)
    if (is_zero(rule, i, 0))
      b[i] = -a[i]; // the sum is 0
  if (bad < n)
    b[bad] = std::numeric_limits<float>::infinity();
  std::vector<float> sum(n);
  add(a, b, sum);
  // In memory, the distance of two slots is larger than the length of the range.
  const auto stride = n + 5;
  const auto old = values<float>(rule.slots() == 0 ? 0 : (rule.slots() - 1) * stride + n, "state");
  auto positive = old;
  std::ranges::transform(old, positive.begin(), [](float x) { return std::abs(x); });
  for (std::size_t slot = 0; slot < rule.slots(); ++slot)
    positive[slot * stride + tiny] = 0;
  auto state = positive;
  std::vector<float> expected(n);
  update<float>(rule,
                {.weights = w,
                 .gradient = sum,
                 .state = state,
                 .updated = expected,
                 .rate = 0.1,
                 .scale = 0.5,
                 .stride = stride});
  auto other_state = std::vector<float>(state.size(), -1.0F);
  std::vector<float> updated(n);
  bool finite = true;
  const auto before = positive;
  update<float>(rule,
                {.weights = w,
                 .gradient = a,
                 .state = other_state,
                 .updated = updated,
                 .rate = 0.1,
                 .scale = 0.5,
                 .stride = stride,
                 .addend = b,
                 .old_state = positive,
                 .finite = &finite});
  BOOST_TEST(finite == (bad >= n));
  BOOST_TEST(same_bits(updated, expected));
  BOOST_TEST(same_bits(positive, before));
  for (std::size_t slot = 0; slot < rule.slots(); ++slot)
    BOOST_TEST(same_bits(std::span{other_state}.subspan(slot * stride, n),
                         std::span{state}.subspan(slot * stride, n)));
}

} // namespace

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE(terms_are_added_up_and_checked_on_the_way) {
  for (const auto& rule : rules)
    for (const std::size_t n : {1, 7, 1023, 1024, 1031, 3000}) {
      check_terms(rule, n, n);
      for (const std::size_t bad : {std::size_t{0}, n / 2, n - 1})
        check_terms(rule, n, bad);
    }
}

BOOST_AUTO_TEST_CASE(terms_that_do_not_fit) {
  std::vector<float> x(4);
  std::vector<float> state(4);
  const std::vector<float> other(3);
  bool finite = true;
  const troupe::optimizer momentum{optimizer_kind::momentum, 0.9F, 0};
  update_arguments<float> how{x, x, state, x, 0.1, 1, 1};
  update(momentum, how);
  how.addend = other;
  BOOST_CHECK_THROW(update(momentum, how), std::invalid_argument);
  how.addend = {};
  how.old_state = other;
  BOOST_CHECK_THROW(update(momentum, how), std::invalid_argument);
  const troupe::optimizer lamb{.kind = optimizer_kind::lamb};
  std::vector<float> moments(8);
  how = {x, x, moments, x, 0.1, 1, 1};
  update(lamb, how);
  how.finite = &finite;
  BOOST_CHECK_THROW(update(lamb, how), std::invalid_argument);
  how.finite = nullptr;
  how.addend = x;
  BOOST_CHECK_THROW(update(lamb, how), std::invalid_argument);
  how.addend = {};
  const troupe::optimizer lazy{.kind = optimizer_kind::lamb, .lazy = true};
  BOOST_CHECK_THROW(update(lazy, how), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_hundred_steps) {
  for (const auto& rule : rules)
    for (std::size_t n : {0, 1, 7, 8, 9, 1023, 1024, 1031}) {
      // The settings of a rule are floats, but the rate and the scale are doubles.
      check_steps<double>(rule, n, 1e-12);
      check_steps<float>(rule, n, 2e-6);
    }
}

BOOST_AUTO_TEST_CASE(a_hundred_steps_that_look_ahead) {
  for (const auto& rule : rules)
    for (std::size_t n : {0, 1, 7, 1023, 1024, 1031}) {
      // A rule without a moment, like RMSProp without momentum, cannot look ahead.
      const bool moment = rule.moment_slot().has_value() || rule.slots() == 0;
      check_steps<double>(rule, n, 1e-12, moment);
      check_steps<float>(rule, n, 2e-6, moment);
    }
}

// If all gradients are equal, each step of Adam is as long as the learning rate. recount() converts
// the state for another number of updates. After that, steps must still have this length.
BOOST_AUTO_TEST_CASE(a_state_counts_as_that_of_another_number_of_updates) {
  const troupe::optimizer adam{.kind = optimizer_kind::adam, .epsilon = 0};
  constexpr double rate = 0.25;
  for (const std::uint64_t from : {1, 2, 5, 100})
    for (const std::uint64_t to : {1, 3, 5, 1000}) {
      double w = 0;
      std::vector<double> state(2);
      const double g = 3;
      const auto step = [&](std::uint64_t number) {
        troupe::update<double>(adam,
                               {.weights = {&w, 1},
                                .gradient = {&g, 1},
                                .state = state,
                                .updated = {&w, 1},
                                .rate = rate,
                                .step = number});
      };
      for (std::uint64_t i = 1; i <= from; ++i)
        step(i);
      for (std::size_t slot = 0; slot < 2; ++slot)
        state[slot] *= adam.recount(slot, from, to);
      const auto before = w;
      step(to + 1);
      BOOST_TEST(std::abs(before - rate - w) < 1e-9, from << " counts as " << to);
    }
  BOOST_TEST(adam.recount(1, 7, 7) == 1.0);
  BOOST_TEST(adam.recount(1, 0, 7) == 1.0);
  const troupe::optimizer nesterov{.kind = optimizer_kind::nesterov};
  BOOST_TEST(nesterov.recount(0, 3, 7) == 1.0);
}

BOOST_AUTO_TEST_CASE(lamb_that_looks_ahead_with_a_penalty) {
  // With look_ahead, both the direction and the trust ratio of LAMB come from the next moment.
  const troupe::optimizer rule{.kind = optimizer_kind::lamb, .l1 = 0.1};
  std::vector<double> w{3, -4};
  const std::vector<double> g{1, 2};
  std::vector<double> squares(2);
  std::vector<double> means(2);
  update_arguments<double> x{w, g, squares, w, 0.5, 1};
  x.moment = means;
  x.look_ahead = true;
  update<double>(rule, x);
  const double p0 = 1.1;
  const double p1 = 1.9;
  BOOST_TEST(std::abs(means[0] - 0.1 * p0) < 1e-12);
  const auto direction = [](double p) {
    return (0.9 * 0.1 * p + 0.1 * p) / (1 - 0.81) / (std::abs(p) + 1e-8);
  };
  const double trust = 5 / std::hypot(direction(p0), direction(p1));
  BOOST_TEST(std::abs(w[0] - (3 - 0.5 * trust * direction(p0))) < 1e-9);
  BOOST_TEST(std::abs(w[1] - (-4 - 0.5 * trust * direction(p1))) < 1e-9);
}

// The expected values are from the script references/optimizers.py, which uses PyTorch.
BOOST_AUTO_TEST_CASE(a_hundred_steps_of_pytorch) {
  const std::map<std::string, troupe::optimizer> named{
    {"sgd", {optimizer_kind::sgd, 0, 0.25F}},
    {"momentum", {optimizer_kind::momentum, 0.75F, 0.25F}},
    {"nesterov", {optimizer_kind::nesterov, 0.75F, 0}},
    {"adagrad", {.kind = optimizer_kind::adagrad, .weight_decay = 0.25F, .epsilon = 1e-10}},
    {"rmsprop", {optimizer_kind::rmsprop, 0, 0.25F}},
    {"rmsprop_momentum", {.kind = optimizer_kind::rmsprop, .momentum = 0.75F, .smoothing = 0.9}},
    {"adam", {optimizer_kind::adam, 0, 0.25F}},
    {"adamw",
     {.kind = optimizer_kind::adamw,
      .weight_decay = 0.25F,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .epsilon = 1e-3}},
    {"adamw_clipped", {.kind = optimizer_kind::adamw, .weight_decay = 0.25F, .clip_value = 0.5}},
    {"lamb",
     {.kind = optimizer_kind::lamb,
      .weight_decay = 0.25F,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .epsilon = 1e-3}},
    {"lamb_without_decay", {.kind = optimizer_kind::lamb, .l1 = 0.125}},
    {"momentum_l1",
     {.kind = optimizer_kind::momentum, .momentum = 0.75F, .weight_decay = 0.25F, .l1 = 0.5}},
    {"adamw_l1",
     {.kind = optimizer_kind::adamw, .weight_decay = 0.25F, .clip_value = 0.5, .l1 = 0.5}},
    {"momentum_norm",
     {.kind = optimizer_kind::momentum, .momentum = 0.75F, .weight_decay = 0.25F, .clip_norm = 1}},
    {"lamb_norm", {.kind = optimizer_kind::lamb, .weight_decay = 0.25F, .clip_norm = 1}},
    {"lazy_adam", {.kind = optimizer_kind::adam, .epsilon = 1e-30, .lazy = true}},
  };
  std::ifstream file(test::source_folder() / "tests/kernels/references/optimizers.txt");
  std::size_t rules_checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#'))
      continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<double> expected;
    for (std::string word; words >> word;)
      expected.push_back(std::stod(word));
    const auto& rule = named.at(name);
    std::vector<double> w{1.0, -0.5, 0.25, 2.0, -3.0};
    std::vector<double> g(w.size());
    std::vector<double> state(rule.slots() * w.size());
    for (std::uint64_t step = 0; step < 100; ++step) {
      const auto t = static_cast<double>(step);
      for (std::size_t i = 0; i < w.size(); ++i)
        g[i] = is_zero(rule, i, step) ? 0 : 0.3 * w[i] + std::sin(t * static_cast<double>(i + 1));
      const double norm = std::sqrt(sum_of_squares(std::span<const double>{g}));
      const double scale = clip_factor(rule.clip_norm, norm);
      update<double>(rule, {w, g, state, w, 0.05 / (1 + t / 10), scale, step + 1});
    }
    check_close(std::span<const double>(w), expected, 1e-11, 1e-11, name.c_str());
    ++rules_checked;
  }
  BOOST_TEST(rules_checked == named.size());
}

BOOST_AUTO_TEST_CASE(slices_have_the_bits_of_the_whole) {
  const std::size_t n = 5003;
  const auto w = values<float>(n, "w");
  const auto g = values<float>(n, "g");
  for (const auto& rule : rules) {
    // These values must not be negative, because some of them are sums of squares.
    auto before = values<float>(rule.slots() * n, "state");
    for (auto& x : before)
      x = std::abs(x);
    auto state = before;
    std::vector<float> all(n);
    update<float>(rule, {w, g, state, all, 0.01, 0.1});
    for (std::size_t parts : {2, 3, 7, 600, 5003}) {
      auto sliced_state = before;
      guarded<float> sliced(n, 5);
      for (auto part : split_evenly(n, parts)) {
        auto cut = [part](auto& x) { return std::span(x).subspan(part.begin, part.size()); };
        // The slots of a slice are stored one after the other.
        std::vector<float> own;
        const auto slot = [&](std::size_t i) {
          return std::span(sliced_state).subspan(i * n + part.begin, part.size());
        };
        for (std::size_t i = 0; i < rule.slots(); ++i)
          own.insert(own.end(), slot(i).begin(), slot(i).end());
        update<float>(
          rule, {cut(w), cut(g), own, sliced.get().subspan(part.begin, part.size()), 0.01, 0.1});
        for (std::size_t i = 0; i < rule.slots(); ++i)
          std::ranges::copy(std::span(own).subspan(i * part.size(), part.size()), slot(i).begin());
      }
      BOOST_TEST(sliced.intact());
      BOOST_TEST(same_bits(sliced.get(), all));
      BOOST_TEST(same_bits(sliced_state, state));
    }
  }
}

// The optimizer state has all slots of the whole vector, n elements each. An update changes only a
// slice of the vector, and in each slot only the elements of this slice.
BOOST_AUTO_TEST_CASE(state_with_a_stride) {
  const std::size_t n = 2000;
  const range part{300, 1400};
  const auto cut = [&](auto& x) { return std::span(x).subspan(part.begin, part.size()); };
  const auto w = values<float>(n, "w");
  const auto g = values<float>(n, "g");
  for (const auto& rule : rules) {
    if (rule.slots() == 0)
      continue;
    std::vector<float> state(rule.slots() * n, 0.25F);
    auto expected = w;
    update<float>(rule, {expected, g, state, expected, 0.01, 0.1});
    std::vector<float> apart(rule.slots() * n, 0.25F);
    auto result = w;
    const auto own = std::span(apart).subspan(part.begin, (rule.slots() - 1) * n + part.size());
    update<float>(rule, {cut(result), cut(g), own, cut(result), 0.01, 0.1, 1, n});
    BOOST_TEST(same_bits(cut(result), cut(expected)));
    for (std::size_t i = 0; i < rule.slots() * n; ++i)
      BOOST_TEST(apart[i] == (part.contains(i % n) ? state[i] : 0.25F));
  }
}

// LAMB has no trust ratio if all weights are 0, or if the direction is 0.
BOOST_AUTO_TEST_CASE(lamb_at_zero) {
  const troupe::optimizer rule{.kind = optimizer_kind::lamb};
  std::vector<double> w(5);
  const std::vector<double> g{1, -2, 3, -4, 5};
  std::vector<double> state(10);
  update<double>(rule, {w, g, state, w, 0.25, 1});
  for (std::size_t i = 0; i < 5; ++i)
    BOOST_TEST(std::abs(w[i] - (i % 2 == 0 ? -0.25 : 0.25)) < 1e-6);
  std::vector<double> still{1, 2, 3};
  std::vector<double> fresh(6);
  const std::vector<double> none(3);
  update<double>(rule, {still, none, fresh, still, 0.25, 1});
  BOOST_TEST(still == (std::vector<double>{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(lamb_in_float_in_place_and_apart) {
  const troupe::optimizer rule{.kind = optimizer_kind::lamb, .weight_decay = 0.01F, .l1 = 0.001};
  for (std::size_t n : {0, 1, 7, 1023, 1024, 1031, 5000}) {
    auto w = values<float>(n, "w");
    const auto wide = values<double>(n, "w");
    const auto g = values<float>(n, "g");
    std::vector<float> state(2 * n);
    guarded<float> out(n, 3);
    update<float>(rule, {w, g, state, out.get(), 0.01, 0.1});
    BOOST_TEST(out.intact());
    std::vector<double> expected(n);
    std::vector<double> wide_state(2 * n);
    const std::vector<double> wide_g(g.begin(), g.end());
    update<double>(rule, {wide, wide_g, wide_state, expected, 0.01, 0.1});
    check_close(std::span<const float>(out.get()), expected, 1e-5, 1e-6, "lamb");
    std::ranges::fill(state, 0.0F);
    update<float>(rule, {w, g, state, w, 0.01, 0.1});
    BOOST_TEST(same_bits(w, out.get()));
  }
}

BOOST_AUTO_TEST_CASE(clip_factors) {
  BOOST_TEST(clip_factor(0, 1e30) == 1);
  BOOST_TEST(clip_factor(2, 1) == 1);
  BOOST_TEST(clip_factor(2, 0) == 1);
  BOOST_TEST(clip_factor(2, 8) == 2 / (8 + 1e-6));
  BOOST_TEST(std::isnan(clip_factor(2, std::numeric_limits<double>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(which_rules_keep_elements_without_gradient) {
  const std::size_t n = 100;
  const auto w = values<float>(n, "w");
  const std::vector<float> g(n, 0.0F);
  std::size_t kept = 0;
  for (const auto& rule : rules) {
    std::vector<float> state(rule.slots() * n, 0.25F);
    const auto before = state;
    std::vector<float> updated(n);
    update<float>(rule, {w, g, state, updated, 0.01, 0.1, 3});
    BOOST_TEST((same_bits(updated, w) && same_bits(state, before)) == rule.keeps_zero_gradients());
    kept += rule.keeps_zero_gradients() ? 1 : 0;
  }
  BOOST_TEST(kept == 8u);
}

BOOST_AUTO_TEST_CASE(statistics_follow) {
  std::vector<float> w{1, -2, 0};
  const std::vector<float> sum{8, 8, 4}; // the sum for 4 samples, whose mean is 2, 2, 1
  update_statistics(w, sum, 0.25, 0.125, w);
  BOOST_TEST(w == (std::vector<float>{1.125F, -1.5F, 0.125F}), boost::test_tools::per_element());
  BOOST_CHECK_THROW(update_statistics(w, std::span(sum).first(2), 1, 1, w), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(in_place_and_streaming_give_the_same_bits) {
  const std::size_t n = (1U << 20) + 13; // large enough that results are written past the cache
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
    // With infinite gradients, rules that divide by the root of squares give NaN. Other rules keep
    // infinity with its sign.
    const bool divides = rule.kind >= optimizer_kind::adagrad;
    if (rule.clip_value > 0)
      BOOST_TEST(std::isfinite(w[17]));
    else if (divides)
      BOOST_TEST(std::isnan(w[17]));
    else
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
    update<float>({optimizer_kind::adam}, {three, three, three, three, 0.1, 1, 1, 4}),
    std::invalid_argument);
  BOOST_CHECK_THROW(
    update<float>({optimizer_kind::momentum, 0.9F, 0}, {three, three, {}, three, 0.1, 1}),
    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
