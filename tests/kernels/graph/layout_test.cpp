#include "kernels/graph/layout.hpp"

#include "kernels/error.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(layout)

BOOST_AUTO_TEST_CASE(shapes) {
  BOOST_TEST(to_string(shape{}) == "()");
  BOOST_TEST(shape{}.elements() == 1U);
  const shape x{shape::batch, 3, 4};
  BOOST_TEST(to_string(x) == "(batch, 3, 4)");
  BOOST_TEST(x.elements(5) == 60U);
  BOOST_TEST(x.elements(0) == 0U);
  BOOST_TEST(x.has_batch());
  BOOST_CHECK_THROW((shape{3, shape::batch}), input_error);
  BOOST_CHECK_THROW((shape{-2}), input_error);
  BOOST_CHECK_THROW((shape{1L << 40, 1L << 40}), input_error);
}

BOOST_AUTO_TEST_CASE(tensors_follow_each_other) {
  troupe::layout x;
  x.add("a.weight", {3, 4}, initializer::he_uniform());
  x.add("empty", {0, 4});
  BOOST_TEST(to_string(parameter_kind::frozen) == "frozen");
  x.add("a.mean", {3}, initializer::zeros(), parameter_kind::state);
  BOOST_TEST(x.size() == 15U);
  BOOST_TEST(x.find("a.mean")->offset == 12U);
  BOOST_TEST((x.find("a.mean")->kind == parameter_kind::state));
  BOOST_TEST(x.find("none") == nullptr);
  BOOST_TEST(x.entry_at(0) == 0U);
  BOOST_TEST(x.entry_at(11) == 0U);
  BOOST_TEST(x.entry_at(12) == 2U);
  BOOST_TEST(x.entry_at(14) == 2U);
  BOOST_CHECK_THROW(x.add("a.weight", {1}), input_error);
  BOOST_CHECK_THROW(x.add("", {1}), input_error);
  BOOST_CHECK_THROW(x.add("per_sample", {shape::batch}), input_error);
}

BOOST_AUTO_TEST_CASE(the_first_difference_is_named) {
  troupe::layout a;
  a.add("w", {3, 4});
  troupe::layout b = a;
  BOOST_TEST(!first_difference(a, b));
  b.add("v", {2});
  BOOST_TEST(*first_difference(a, b) == "tensor 1: nothing here, v (2) float32 trainable there");
}

BOOST_AUTO_TEST_CASE(ranges) {
  BOOST_TEST((intersect({2, 5}, {4, 9}) == range{4, 5}));
  BOOST_TEST(intersect({2, 5}, {7, 9}).empty());
  for (std::size_t n : {0, 1, 7, 64, 1000003})
    for (std::size_t parts : {1, 2, 3, 8, 13}) {
      const auto split = split_evenly(n, parts);
      BOOST_REQUIRE(split.size() == parts);
      std::size_t at = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        BOOST_TEST(split[i].begin == at);
        BOOST_TEST((split[i] == part_of(n, parts, i)));
        BOOST_TEST(split[i].size() >= n / parts);
        BOOST_TEST(split[i].size() <= n / parts + 1);
        at = split[i].end;
      }
      BOOST_TEST(at == n);
    }
  BOOST_CHECK_THROW(split_evenly(3, 0), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
