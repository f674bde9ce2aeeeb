#include "actors/touched_rows.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(touched_rows)

BOOST_AUTO_TEST_CASE(selected_elements) {
  // Elements 3 to 9 are a table with rows of 2, in which row 1 is selected.
  proto::Selection x;
  auto& table = *x.add_tensor();
  table.set_begin(3);
  table.set_end(9);
  table.set_width(2);
  table.add_row(1);
  BOOST_TEST((ranges_of(x, {0, 12}) == range_list{{0, 3}, {5, 7}, {9, 12}}));
  BOOST_TEST((ranges_of(x, {6, 10}) == range_list{{0, 1}, {3, 4}}));
  BOOST_TEST(ranges_of(x, {7, 9}).empty());
  table.add_row(2); // the next row, and what follows the table, are one range with this one
  BOOST_TEST((ranges_of(x, {0, 12}) == range_list{{0, 3}, {5, 12}}));
  BOOST_TEST((ranges_of({}, {2, 5}) == range_list{{0, 3}}));
}

BOOST_AUTO_TEST_CASE(memory_is_zero_again) {
  constexpr std::size_t n = 300;
  cleared_memory memory{n};
  std::mt19937 random{7};
  std::vector<payload> held;
  for (int i = 0; i < 500; ++i) {
    const std::size_t begin = random() % n;
    const range_list written{{begin, std::min(n, begin + random() % 40)}};
    auto x = memory.take(written);
    BOOST_TEST_REQUIRE(x.as_floats().size() == n);
    BOOST_TEST_REQUIRE(std::ranges::all_of(x.as_floats(), [](float v) { return v == 0; }));
    for (const auto& part : written)
      std::ranges::fill(x.as_mutable_floats().subspan(part.begin, part.size()), 1.0F);
    for (const auto& other : held)
      BOOST_TEST_REQUIRE(other.data() != x.data());
    held.push_back(std::move(x));
    while (held.size() > 3 || (!held.empty() && random() % 3 == 0))
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
  }
}

// A slice, such as the part of a shard, keeps the vector in use.
BOOST_AUTO_TEST_CASE(slices_are_references) {
  cleared_memory memory{8};
  auto x = memory.take({{0, 8}});
  std::ranges::fill(x.as_mutable_floats(), 5.0F);
  const auto slice = x.slice_floats(2, 3);
  x = {};
  BOOST_TEST(memory.take({}).as_floats()[2] == 0);
  BOOST_TEST(slice.as_floats()[0] == 5);
}

BOOST_AUTO_TEST_SUITE_END()
