#include "actors/store/store_values.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(store_values_of_a_server)

namespace {

std::vector<float> all_of(const store_values& x) {
  const std::vector<range> everything{x.where()};
  const auto found = x.pull(everything);
  return {found.as_floats().begin(), found.as_floats().end()};
}

void push(store_values& x, std::vector<range> where, std::vector<float> values) {
  x.push(where, values);
}

} // namespace

BOOST_AUTO_TEST_CASE(sums_of_ranges) {
  store_values x{{100, 106}, {}};
  push(x, {{100, 102}, {105, 106}}, {1, 2, 3});
  push(x, {{101, 104}}, {10, 20, 30});
  BOOST_TEST(all_of(x) == (std::vector<float>{1, 12, 20, 30, 0, 3}),
             boost::test_tools::per_element());
  const std::vector<range> some{{101, 102}, {103, 104}};
  const auto found = x.pull(some);
  BOOST_TEST((found.as_floats()[0] == 12 && found.as_floats()[1] == 30));
  BOOST_TEST(x.version() == 2u);
}

BOOST_AUTO_TEST_CASE(an_update_of_some_ranges_leaves_others_and_their_state) {
  store_rule rule{optimizer{.kind = optimizer_kind::momentum, .momentum = 0.5F}, 1.0};
  store_values x{{0, 3}, rule};
  push(x, {{0, 3}}, {1, 1, 1});
  push(x, {{1, 2}}, {1});
  push(x, {{0, 3}}, {0, 0, 0});
  // The velocities of element 0 (and 2) are 1 and 0.5 in its two updates. Those of element 1 are 1,
  // 1.5 and 0.75.
  BOOST_TEST(all_of(x) == (std::vector<float>{-1.5F, -3.25F, -1.5F}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_to_begin_with) {
  store_rule rule{optimizer{}, 0.5};
  store_values x{{0, 2}, rule};
  const std::vector<range> both{{0, 2}};
  x.assign(both, std::vector<float>{3, 4});
  push(x, {{1, 2}}, {2});
  BOOST_TEST(all_of(x) == (std::vector<float>{3, 3}), boost::test_tools::per_element());
  BOOST_TEST(x.version() == 2u);
}

// The first step of Adam has the length `rate`, whatever the gradient.
BOOST_AUTO_TEST_CASE(steps_of_adam) {
  store_rule rule{optimizer{.kind = optimizer_kind::adam}, 0.1};
  store_values x{{0, 2}, rule};
  push(x, {{0, 2}}, {5, -0.01F});
  BOOST_TEST(all_of(x)[0] == -0.1F, boost::test_tools::tolerance(1e-5F));
  BOOST_TEST(all_of(x)[1] == 0.1F, boost::test_tools::tolerance(1e-5F));
}

// Pulled values never change while a reader uses them, and no update is lost meanwhile.
BOOST_AUTO_TEST_CASE(pulled_values_do_not_change) {
  store_values x{{0, 4}, {}};
  const std::vector<range> everything{{0, 4}};
  push(x, {{0, 4}}, {1, 2, 3, 4});
  const auto lent = x.pull(everything);
  const auto* memory = lent.data();
  push(x, {{1, 2}}, {10});
  push(x, {{3, 4}}, {10});
  BOOST_TEST((std::vector<float>(lent.as_floats().begin(), lent.as_floats().end()))
               == (std::vector<float>{1, 2, 3, 4}),
             boost::test_tools::per_element());
  BOOST_TEST(all_of(x) == (std::vector<float>{1, 12, 3, 14}), boost::test_tools::per_element());
  BOOST_TEST((x.pull(everything).data() != memory));
}

// If no reader uses pulled values, updates are made in place, without a copy.
BOOST_AUTO_TEST_CASE(updates_in_place) {
  store_values x{{0, 4}, {}};
  const std::vector<range> everything{{0, 4}};
  const auto* memory = x.pull(everything).data();
  push(x, {{1, 2}}, {10});
  BOOST_TEST((x.pull(everything).data() == memory));
}

BOOST_AUTO_TEST_CASE(a_server_without_elements) {
  store_values x{{5, 5}, {}};
  push(x, {}, {});
  BOOST_TEST(all_of(x).empty());
}

BOOST_AUTO_TEST_SUITE_END()
