#include "tests/kernels/numeric.hpp"

#include "kernels/graph/operations.hpp"

#include "kernels/cpu/executor.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>

namespace troupe::test {

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("TROUPE_SEED");
    const std::uint64_t x = text != nullptr ? std::strtoull(text, nullptr, 10) : 20261120;
    std::cout << "TROUPE_SEED=" << x << "\n";
    return x;
  }();
  return value;
}

namespace {

template <class T>
void check(std::span<const T> actual, std::span<const double> expected, double rtol, double atol,
           const std::string& what) {
  BOOST_REQUIRE_MESSAGE(actual.size() == expected.size(),
                        what << ": " << actual.size() << " elements, expected " << expected.size());
  double worst = 0;
  std::size_t worst_index = actual.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto a = static_cast<double>(actual[i]);
    const auto e = expected[i];
    if ((std::isnan(a) && std::isnan(e)) || (std::isinf(e) && a == e))
      continue;
    const double difference = std::fabs(a - e);
    if (difference <= atol + rtol * std::fabs(e))
      continue; // with NaN, the condition is false
    const double excess = difference / (atol + rtol * std::fabs(e));
    if (worst_index == actual.size() || !(excess <= worst)) {
      worst = excess;
      worst_index = i;
    }
  }
  if (worst_index == actual.size()) {
    BOOST_TEST(true);
    return;
  }
  BOOST_ERROR(what << ": element " << worst_index << " of " << actual.size() << " is "
                   << actual[worst_index] << ", expected " << expected[worst_index] << " (" << worst
                   << " times the tolerance)");
}

} // namespace

void check_close(std::span<const double> actual, std::span<const double> expected, double rtol,
                 double atol, const std::string& what) {
  check(actual, expected, rtol, atol, what);
}

void check_close(std::span<const float> actual, std::span<const double> expected, double rtol,
                 double atol, const std::string& what) {
  check(actual, expected, rtol, atol, what);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<std::uint32_t, float>,
                            std::bit_cast<std::uint32_t, float>);
}

std::vector<double> random_values(std::size_t n, std::string_view name, std::uint64_t salt) {
  random_stream stream(seed() + salt, name);
  std::vector<double> result(n);
  for (auto& x : result) {
    x = static_cast<float>(stream.normal());
    x += std::copysign(0.0625, x);
    x = static_cast<float>(x);
  }
  return result;
}

double rounded(dtype type, double x) {
  if (!is_narrow(type) || x == 0 || !std::isfinite(x))
    return x;
  const bool brain = type == dtype::bfloat16;
  const int fraction_bits = brain ? 7 : 10;
  const int least_exponent = brain ? -126 : -14;
  const double largest = brain ? std::ldexp(255, 120) : 65504;
  int exponent = 0;
  std::frexp(x, &exponent); // |x| is between 2^(exponent - 1) and 2^exponent
  const int last_bit = std::max(exponent - 1, least_exponent) - fraction_bits;
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, -last_bit)), last_bit);
  return std::fabs(result) > largest ? std::copysign(HUGE_VAL, x) : result;
}

std::vector<double> central_differences(const std::function<double()>& f, std::span<double> x) {
  std::vector<double> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    const double h = 1e-4;
    auto at = [&](double shift) {
      x[i] = before + shift;
      return f();
    };
    result[i] = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    x[i] = before;
  }
  return result;
}

namespace {

/// Sets to 0: about three of four values, and all values of every third row.
void make_sparse(std::vector<double>& values, std::size_t rows, std::uint64_t salt) {
  random_stream stream(seed() + salt, "sparse");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (stream.below(4) != 0 || i / (values.size() / rows) % 3 == 1)
      values[i] = 0;
}

/// A sparse matrix as compressed rows.
template <class T>
struct compressed {
  std::vector<std::int32_t> starts{0};
  std::vector<std::int32_t> columns;
  std::vector<T> values;

  compressed() = default;
  compressed(std::span<const double> matrix, std::size_t rows) {
    const auto width = rows == 0 ? 0 : matrix.size() / rows;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t j = 0; j < width; ++j)
        if (const double x = matrix[r * width + j]; x != 0) {
          columns.push_back(static_cast<std::int32_t>(j));
          values.push_back(static_cast<T>(x));
        }
      starts.push_back(static_cast<std::int32_t>(columns.size()));
    }
  }
  sparse_rows<T> view() const { return {starts.data(), columns.data(), values.data()}; }
};

} // namespace

leaves random_leaves(const graph& g, std::size_t rows, std::int64_t classes, std::uint64_t salt) {
  leaves result;
  result.rows = rows;
  for (const auto& entry : g.parameters().entries())
    result.weights.push_back(random_values(entry.size, entry.name, salt));
  for (auto id : g.placeholders()) {
    const auto& n = g.at(id);
    auto values = random_values(n.shape.elements(rows), n.name, salt);
    if (n.type == dtype::int32) {
      random_stream stream(seed() + salt, n.name);
      for (auto& x : values)
        x = static_cast<double>(stream.below(static_cast<std::uint64_t>(classes)));
    }
    if (n.type == dtype::sparse)
      make_sparse(values, rows, salt);
    result.feeds.push_back(std::move(values));
  }
  return result;
}

template <class T>
executed execute(const graph& g, const leaves& values, expression loss,
                 const std::vector<expression>& fetches, bool gradients, expression correct) {
  auto options = cpu_plan_options();
  options.max_rows = std::max<std::size_t>(values.rows, 1);
  options.loss = loss;
  options.correct = correct;
  options.fetches = fetches;
  options.gradients = gradients;
  executor<T> run(std::make_shared<const plan>(g, options));

  std::vector<std::vector<T>> weights;
  std::vector<const T*> pointers;
  for (const auto& x : values.weights)
    pointers.push_back(weights.emplace_back(x.begin(), x.end()).data());
  std::vector<std::vector<T>> floats(values.feeds.size());
  std::vector<std::vector<std::int32_t>> labels(values.feeds.size());
  std::vector<compressed<T>> sparse(values.feeds.size());
  std::vector<feed<T>> feeds;
  for (std::size_t i = 0; i < values.feeds.size(); ++i) {
    const auto& x = values.feeds[i];
    if (g.at(g.placeholders()[i]).type == dtype::int32) {
      labels[i].assign(x.begin(), x.end());
      feeds.emplace_back(labels[i].data());
    } else if (g.at(g.placeholders()[i]).type == dtype::sparse) {
      sparse[i] = {x, values.rows};
      feeds.emplace_back(sparse[i].view());
    } else {
      floats[i].assign(x.begin(), x.end());
      feeds.emplace_back(floats[i].data());
    }
  }
  guarded<T> gradient(gradients ? g.parameters().size() : 0, 3);
  run_arguments<T> arguments;
  arguments.rows = values.rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = gradient.get();
  const auto result = run.run(arguments);
  BOOST_TEST(gradient.intact());

  executed out;
  out.loss = result.loss;
  out.correct = result.correct;
  out.counted = result.counted;
  out.gradient.assign(gradient.get().begin(), gradient.get().end());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    auto x = run.fetched(i);
    out.fetches.emplace_back(x.begin(), x.end());
  }
  return out;
}

template executed execute<float>(const graph&, const leaves&, expression,
                                 const std::vector<expression>&, bool, expression);
template executed execute<double>(const graph&, const leaves&, expression,
                                  const std::vector<expression>&, bool, expression);

namespace {

double largest(std::span<const double> x) {
  double result = 0;
  for (double v : x)
    result = std::max(result, std::fabs(v));
  return result;
}

} // namespace

void check_forward(const graph& g, expression y, double float_tolerance) {
  for (std::size_t rows : {0, 1, 2, 5, 7, 17, 64, 97}) {
    const auto values = random_leaves(g, rows);
    const auto expected = reference_value(g, y.id(), values);
    const auto what = y.name() + " with " + std::to_string(rows) + " rows";
    const auto scale = largest(expected);
    check_close(execute<double>(g, values, {}, {y}, false).fetches[0], expected, 1e-12,
                1e-12 * scale, what + ", double");
    check_close(execute<float>(g, values, {}, {y}, false).fetches[0], expected, float_tolerance,
                float_tolerance * scale, what + ", float");
  }
}

void check_gradient(const graph& g, expression loss, double float_tolerance) {
  for (std::size_t rows : {1, 2, 7}) {
    std::uint64_t salt = 0;
    auto values = random_leaves(g, rows);
    while (distance_to_kinks(g, loss.id(), values) < 5e-3 && ++salt < 1000)
      values = random_leaves(g, rows, 3, salt);
    const auto actual = execute<double>(g, values, loss, {}, true);
    const auto expected_loss = reference_value(g, loss.id(), values);
    check_close(std::vector{actual.loss}, expected_loss, 1e-12, 1e-12, loss.name());
    const auto what = "gradient of " + loss.name() + " with " + std::to_string(rows) + " rows";
    // Numerical gradients take long, and use only the reference code. A sanitizer would find
    // nothing new there.
    if (!under_sanitizer) {
      std::vector<double> expected;
      for (auto& weights : values.weights) {
        auto part =
          central_differences([&] { return reference_value(g, loss.id(), values)[0]; }, weights);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      // The tolerance is relative to the element. Where large terms nearly cancel, it is relative
      // to a hundredth of the largest element.
      check_close(actual.gradient, expected, 1e-6, 1e-8 * largest(expected), what + ", double");
    }
    check_close(execute<float>(g, values, loss, {}, true).gradient, actual.gradient,
                float_tolerance, float_tolerance * largest(actual.gradient), what + ", float");
  }
}

expression to_scalar(expression y) {
  return sum(y * y + y);
}

void check_both(const graph& g, expression y, double float_tolerance) {
  check_forward(g, y, float_tolerance);
  check_gradient(g, to_scalar(y), float_tolerance * 10);
}

} // namespace troupe::test
