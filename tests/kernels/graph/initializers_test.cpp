#include "kernels/graph/initializers.hpp"

#include "kernels/graph/layout.hpp"
#include "kernels/graph/orthogonal.hpp"
#include "kernels/random.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <thread>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(initializers)

namespace {

troupe::layout example() {
  troupe::layout x;
  x.add("a.weight", {31, 17}, initializer::glorot_uniform());
  x.add("a.bias", {31}, initializer::constant(0.5));
  x.add("b.weight", {13, 31}, initializer::he_uniform());
  x.add("b.bias", {13});
  x.add("c.weight", {3, 5, 7, 2}, initializer::he_normal());
  x.add("d.weight", {12, 8}, initializer::orthogonal(2));
  x.add("d.bias", {9}, initializer::normal(0.1));
  return x;
}

std::vector<float> whole(const troupe::layout& x, std::uint64_t seed) {
  std::vector<float> out(x.size());
  initialize(x, {0, x.size()}, seed, out);
  return out;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_slice_equals_the_slice_of_the_whole) {
  const auto x = example();
  const auto all = whole(x, test::seed());
  for (std::size_t parts : {1, 2, 3, 7, 50}) {
    for (auto part : split_evenly(x.size(), parts)) {
      test::guarded<float> out(part.size(), 1);
      initialize(x, part, test::seed(), out.get());
      BOOST_TEST(test::same_bits(out.get(), std::span(all).subspan(part.begin, part.size())));
      BOOST_TEST(out.intact());
    }
  }
}

BOOST_AUTO_TEST_CASE(other_tensors_do_not_matter) {
  const auto x = example();
  const auto all = whole(x, 1);
  troupe::layout y;
  y.add("new", {100}, initializer::he_normal());
  y.add("b.weight", {13, 31}, initializer::he_uniform());
  const auto other = whole(y, 1);
  BOOST_TEST(test::same_bits(std::span(all).subspan(x.find("b.weight")->offset, 13 * 31),
                             std::span(other).subspan(100)));
  BOOST_TEST(!test::same_bits(all, whole(x, 2)));
}

BOOST_AUTO_TEST_CASE(bounds_and_moments) {
  troupe::layout x;
  x.add("glorot", {300, 200}, initializer::glorot_uniform());
  x.add("he_uniform", {300, 200}, initializer::he_uniform());
  x.add("he_normal", {300, 200}, initializer::he_normal());
  x.add("glorot_normal", {300, 200}, initializer::glorot_normal());
  x.add("normal", {300, 200}, initializer::normal(0.5));
  x.add("uniform", {300, 200}, initializer::uniform(0.25));
  const auto all = whole(x, 3);
  auto check = [&](const char* name, double variance, double bound) {
    const auto& entry = *x.find(name);
    const auto values = std::span(all).subspan(entry.offset, entry.size);
    double squares = 0;
    for (float v : values)
      squares += double{v} * double{v};
    BOOST_TEST(std::fabs(squares / 60000 / variance - 1) < 0.03);
    const float top = *std::ranges::max_element(values);
    BOOST_TEST((bound == 0 || (top <= bound && top > bound * 0.99)));
  };
  check("glorot", 2.0 / 500, std::sqrt(6.0 / 500));
  check("he_uniform", 2.0 / 200, std::sqrt(6.0 / 200));
  check("he_normal", 2.0 / 200, 0);
  check("glorot_normal", 2.0 / 500, 0);
  check("normal", 0.25, 0);
  check("uniform", 0.0625 / 3, 0.25);
}

// For sparse features, weights are stored as (inputs, units) instead of (units, inputs). In both
// layouts, their variance must depend on the number of inputs in the same way.
BOOST_AUTO_TEST_CASE(the_fan_of_weights_with_inputs_first) {
  const auto variance = [](initializer how, bool inputs_first) {
    how.inputs_first = inputs_first;
    std::vector<float> x(100'000);
    initialize(how, 3, "w", {1000, 100}, {0, x.size()}, x);
    double squares = 0;
    for (const float v : x)
      squares += double{v} * double{v};
    return squares / static_cast<double>(x.size());
  };
  for (const auto how : {initializer::he_uniform(), initializer::he_normal()}) {
    BOOST_TEST(std::abs(variance(how, true) * 1000 / 2 - 1) < 0.03);
    BOOST_TEST(std::abs(variance(how, false) * 100 / 2 - 1) < 0.03);
  }
  BOOST_TEST(variance(initializer::glorot_uniform(), true)
             == variance(initializer::glorot_uniform(), false));
}

// The rows of the matrix are orthogonal, and their length is the gain. If there are fewer columns
// than rows, this holds for the columns.
BOOST_AUTO_TEST_CASE(orthogonal_matrices) {
  for (const auto& dims :
       {shape{1, 1}, shape{40, 40}, shape{200, 50}, shape{16, 3, 5, 2}, shape{7}}) {
    const std::size_t n = dims.elements();
    std::vector<float> x(n);
    initialize(initializer::orthogonal(1.5), 4, "w", dims, {0, n}, x);
    const auto rows = dims.rank() < 2 ? 1 : static_cast<std::size_t>(dims[0]);
    const auto columns = n / rows;
    const auto vectors = std::min(rows, columns);
    const auto at = [&](std::size_t vector, std::size_t i) {
      return double{rows <= columns ? x[vector * columns + i] : x[i * columns + vector]};
    };
    for (std::size_t a = 0; a < vectors; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (std::size_t i = 0; i < std::max(rows, columns); ++i)
          dot += at(a, i) * at(b, i);
        BOOST_TEST(std::abs(dot - (a == b ? 2.25 : 0)) < 1e-5);
      }
  }
}

// A QR decomposition with a positive diagonal also determines the sign of each vector. So the first
// vector is the first draw, normalized.
BOOST_AUTO_TEST_CASE(the_first_orthogonal_vector) {
  std::vector<float> draws(64);
  initialize(initializer::normal(1), 4, "w", {8, 8}, {0, 64}, draws);
  std::vector<float> x(64);
  initialize(initializer::orthogonal(), 4, "w", {8, 8}, {0, 64}, x);
  double squares = 0;
  for (std::size_t i = 0; i < 8; ++i)
    squares += double{draws[i]} * double{draws[i]};
  for (std::size_t i = 0; i < 8; ++i)
    BOOST_TEST(std::abs(double{x[i]} - double{draws[i]} / std::sqrt(squares)) < 1e-6);
}

// Compares with Gram-Schmidt, which gives the same Q if R has a positive diagonal.
BOOST_AUTO_TEST_CASE(orthogonal_matrices_are_those_of_gram_schmidt) {
  for (const auto& [rows, columns] : {std::pair{1U, 1U},
                                      {1U, 9U},
                                      {9U, 1U},
                                      {5U, 5U},
                                      {40U, 70U},
                                      {70U, 40U},
                                      {64U, 64U},
                                      {113U, 97U}}) {
    troupe::orthogonal_matrices made;
    const auto found = made.get(77, 1, rows, columns);
    const auto count = std::min(rows, columns);
    const auto length = std::max(rows, columns);
    std::vector<std::vector<double>> vectors(count, std::vector<double>(length));
    const auto place = [rows = rows, columns = columns](std::size_t vector, std::size_t i) {
      return rows <= columns ? vector * columns + i : i * columns + vector;
    };
    for (std::size_t k = 0; k < count; ++k) {
      auto& x = vectors[k];
      for (std::size_t i = 0; i < length; ++i)
        x[i] = random_stream(77, {place(k, i)}).normal();
      const auto dot = [&](const std::vector<double>& y) {
        return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
      };
      for (int pass = 0; pass < 2; ++pass)
        for (std::size_t j = 0; j < k; ++j) {
          const double along = dot(vectors[j]);
          for (std::size_t i = 0; i < length; ++i)
            x[i] -= along * vectors[j][i];
        }
      const double norm = std::sqrt(dot(x));
      for (std::size_t i = 0; i < length; ++i) {
        x[i] /= norm;
        BOOST_TEST(std::abs(double{found[place(k, i)]} - x[i]) < 1e-6);
      }
    }
  }
}

// If all shards of a process initialize their ranges at the same time, the decomposition of a
// tensor is computed only once.
BOOST_AUTO_TEST_CASE(orthogonal_matrices_are_computed_once) {
  troupe::layout x;
  x.add("a", {60, 60}, initializer::orthogonal());
  x.add("b", {60, 60}, initializer::orthogonal());
  x.add("c", {60, 20}, initializer::orthogonal(2));
  const auto expected = whole(x, 5);
  troupe::orthogonal_matrices made;
  std::vector<float> out(x.size());
  std::vector<std::jthread> shards;
  for (const auto part : split_evenly(x.size(), 8))
    shards.emplace_back([&, part] {
      initialize(x, part, 5, std::span(out).subspan(part.begin, part.size()), &made);
    });
  shards.clear();
  BOOST_TEST(test::same_bits(out, expected));
  BOOST_TEST(made.computed() == 3U);
}

BOOST_AUTO_TEST_CASE(ranges_outside_are_refused) {
  const auto x = example();
  std::vector<float> out(3);
  BOOST_CHECK_THROW(initialize(x, {0, 4}, 1, out), std::invalid_argument);
  BOOST_CHECK_THROW(initialize(x, {x.size() - 1, x.size() + 2}, 1, out), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
