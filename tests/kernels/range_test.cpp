#include "kernels/range.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(range_lists)

namespace {

/// A random list in [0, 40), and the same set as flags.
struct random_list {
  range_list list;
  std::vector<bool> has = std::vector<bool>(40);

  explicit random_list(std::mt19937& random) {
    for (std::size_t at = random() % 4; at < 36;) {
      const auto end = at + 1 + random() % 4;
      list.push_back({at, end});
      std::fill(has.begin() + static_cast<std::ptrdiff_t>(at),
                has.begin() + static_cast<std::ptrdiff_t>(end), true);
      at = end + random() % 5; // neighbors may touch
    }
  }
};

std::vector<bool> flags(const range_list& x, std::size_t n) {
  std::vector<bool> result(n);
  for (const auto& part : x)
    for (auto i = part.begin; i < part.end; ++i) {
      BOOST_TEST_REQUIRE(i < n);
      BOOST_TEST(!result[i]);
      result[i] = true;
    }
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(lists) {
  std::mt19937 random{5};
  for (int i = 0; i < 1000; ++i) {
    const random_list a{random};
    const random_list b{random};
    BOOST_TEST(elements_of(a.list)
               == static_cast<std::size_t>(std::count(a.has.begin(), a.has.end(), true)));
    std::vector<bool> either(40);
    std::vector<bool> both(40);
    for (std::size_t k = 0; k < 40; ++k) {
      either[k] = a.has[k] || b.has[k];
      both[k] = a.has[k] && b.has[k];
    }
    BOOST_TEST(flags(unite(a.list, b.list), 40) == either);
    BOOST_TEST(flags(intersect(a.list, b.list), 40) == both);
    const range where{random() % 20, 20 + random() % 20};
    BOOST_TEST(flags(cut(a.list, where), where.size())
               == std::vector<bool>(a.has.begin() + static_cast<std::ptrdiff_t>(where.begin),
                                    a.has.begin() + static_cast<std::ptrdiff_t>(where.end)));
  }
}

BOOST_AUTO_TEST_CASE(empty_lists) {
  BOOST_TEST(elements_of({}) == 0u);
  BOOST_TEST(unite({}, {}).empty());
  BOOST_TEST(intersect(range_list{}, {{1, 2}}).empty());
  BOOST_TEST(cut({{1, 3}}, {3, 9}).empty());
  BOOST_TEST(unite({{1, 3}}, {{3, 4}}).size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
