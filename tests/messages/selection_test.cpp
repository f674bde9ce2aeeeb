#include "messages/selection.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

using namespace troupe;

namespace {

proto::Selection::Tensor& add_tensor(proto::Selection& to, std::uint64_t begin, std::uint64_t end,
                                     std::uint64_t width, const std::vector<std::uint32_t>& rows) {
  auto& result = *to.add_tensor();
  result.set_begin(begin);
  result.set_end(end);
  result.set_width(width);
  result.mutable_row()->Add(rows.begin(), rows.end());
  return result;
}

/// A selection of rows of two tables. Elements 3 to 9 are a table with rows of 2, in which row 1 is
/// selected. Elements 12 to 24 are a table with rows of 4, in which rows 0 and 2 are selected.
proto::Selection two_tables() {
  proto::Selection result;
  add_tensor(result, 3, 9, 2, {1});
  add_tensor(result, 12, 24, 4, {0, 2});
  return result;
}

/// The selected elements of [begin, end), searched one by one. Elements outside the tables are
/// always selected.
std::vector<float> naive(const proto::Selection& x, std::uint64_t begin, std::uint64_t end) {
  std::vector<float> result;
  for (auto i = begin; i < end; ++i) {
    bool in = true;
    for (auto& tensor : x.tensor())
      if (i >= tensor.begin() && i < tensor.end())
        in = std::ranges::count(tensor.row(), (i - tensor.begin()) / tensor.width()) > 0;
    if (in)
      result.push_back(static_cast<float>(i));
  }
  return result;
}

void check(const proto::Selection& x, std::uint64_t begin, std::uint64_t end) {
  const auto expected = naive(x, begin, end);
  BOOST_REQUIRE(problem_of(x).empty());
  BOOST_REQUIRE(selected(x, begin, end) == expected.size());
  std::vector<float> all(end - begin);
  std::iota(all.begin(), all.end(), static_cast<float>(begin));
  std::vector<float> some(expected.size());
  const auto part = cut(x, begin, end);
  BOOST_REQUIRE(problem_of(part).empty());
  gather(part, begin, all, some);
  BOOST_REQUIRE(some == expected);
  std::vector<float> back(all.size(), -1);
  scatter(part, begin, some, back);
  for (std::size_t i = 0; i < all.size(); ++i)
    BOOST_REQUIRE(back[i] == (std::ranges::count(expected, all[i]) > 0 ? all[i] : -1));
}

} // namespace

BOOST_AUTO_TEST_SUITE(selection)

BOOST_AUTO_TEST_CASE(rows_of_tables_and_all_between) {
  BOOST_TEST(selected(two_tables(), 0, 30) == 3u + 2 + 3 + 8 + 6);
  BOOST_TEST(selected({}, 5, 9) == 4u);
  BOOST_TEST(selected(two_tables(), 7, 7) == 0u);
  check(two_tables(), 0, 30);
}

// A shard's range may begin and end anywhere in a table, even inside a row.
BOOST_AUTO_TEST_CASE(every_range) {
  for (std::uint64_t begin = 0; begin <= 30; ++begin)
    for (auto end = begin; end <= 30; ++end)
      check(two_tables(), begin, end);
}

BOOST_AUTO_TEST_CASE(a_cut_names_what_lies_there) {
  const auto part = cut(two_tables(), 14, 20);
  BOOST_REQUIRE(part.tensor_size() == 1);
  BOOST_REQUIRE(part.tensor(0).row_size() == 1);
  BOOST_TEST(part.tensor(0).row(0) == 0u);
  BOOST_TEST(cut(two_tables(), 9, 12).tensor_size() == 0);
}

BOOST_AUTO_TEST_CASE(random_tables) {
  std::mt19937 random{1};
  for (int round = 0; round < 200; ++round) {
    proto::Selection x;
    std::uint64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      at += random() % 5;
      const auto width = 1 + random() % 4;
      const auto height = random() % 6;
      std::vector<std::uint32_t> rows;
      for (std::uint32_t row = 0; row < height; ++row)
        if (random() % 2 == 0)
          rows.push_back(row);
      add_tensor(x, at, at + width * height, width, rows);
      at += width * height;
    }
    const auto begin = random() % (at + 1);
    check(x, begin, begin + random() % (at + 5 - begin));
  }
}

// A selection from a peer is refused if it reaches beyond the range.
BOOST_AUTO_TEST_CASE(what_cannot_be_used) {
  const auto refused = [](std::uint64_t begin, std::uint64_t end, std::uint64_t width,
                          const std::vector<std::uint32_t>& rows) {
    proto::Selection x;
    add_tensor(x, begin, end, width, rows);
    return !problem_of(x).empty();
  };
  BOOST_TEST(!refused(4, 12, 2, {0, 3}));
  BOOST_TEST(refused(4, 12, 2, {0, 4}));
  BOOST_TEST(refused(4, 12, 2, {3, 0}));
  BOOST_TEST(refused(4, 12, 2, {1, 1}));
  BOOST_TEST(refused(4, 12, 3, {}));
  BOOST_TEST(refused(4, 12, 0, {}));
  BOOST_TEST(refused(12, 4, 2, {}));
  BOOST_TEST(refused(0, ~std::uint64_t{0}, ~std::uint64_t{0}, {1}));
  auto x = two_tables();
  add_tensor(x, 23, 24, 1, {});
  BOOST_TEST(!problem_of(x).empty());
}

BOOST_AUTO_TEST_SUITE_END()
