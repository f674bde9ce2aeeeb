#include "kernels/initializers.hpp"

#include "kernels/layout.hpp"
#include "numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

using namespace troupe;

namespace {

troupe::layout example() {
  troupe::layout x;
  x.add("a.weight", {31, 17}, initializer::glorot_uniform());
  x.add("a.bias", {31}, initializer::constant(0.5));
  x.add("b.weight", {13, 31}, initializer::he_uniform());
  x.add("b.bias", {13});
  x.add("c.weight", {3, 5, 7, 2}, initializer::he_normal());
  return x;
}

std::vector<float> whole(const troupe::layout& x, std::uint64_t seed) {
  std::vector<float> out(x.size());
  initialize(x, {0, x.size()}, seed, out);
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(initializers)

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
}

BOOST_AUTO_TEST_CASE(ranges_outside_are_refused) {
  const auto x = example();
  std::vector<float> out(3);
  BOOST_CHECK_THROW(initialize(x, {0, 4}, 1, out), std::invalid_argument);
  BOOST_CHECK_THROW(initialize(x, {x.size() - 1, x.size() + 2}, 1, out), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
