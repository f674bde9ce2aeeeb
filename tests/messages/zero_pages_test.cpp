#include "messages/zero_pages.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

#include <sys/mman.h>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(zero_pages)

namespace {

constexpr std::size_t page = 4096;

/// Number of pages for which the system provides memory.
std::size_t resident(payload& x) {
  std::vector<unsigned char> pages((x.size() + page - 1) / page);
  BOOST_REQUIRE(::mincore(x.mutable_data(), x.size(), pages.data()) == 0);
  return static_cast<std::size_t>(
    std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; }));
}

} // namespace

BOOST_AUTO_TEST_CASE(zeros) {
  for (const std::size_t n : {0, 1, 1000, 1 << 18, (1 << 20) + 3}) {
    auto x = zero_floats(n);
    BOOST_TEST(x.as_floats().size() == n);
    BOOST_TEST(std::ranges::all_of(x.as_floats(), [](float v) { return v == 0; }));
    BOOST_TEST((n == 0 || x.unique()));
    // The pool may give the same memory again.
    std::ranges::fill(x.as_mutable_floats(), 1.0F);
  }
}

BOOST_AUTO_TEST_CASE(only_written_pages_take_memory) {
  auto x = zero_floats(std::size_t{1} << 22);
  BOOST_TEST(resident(x) == 0u);
  x.as_mutable_floats()[0] = 1;
  x.as_mutable_floats()[3 * page] = 2;
  BOOST_TEST(resident(x) == 2u);
  const auto part = x.slice_floats(3 * page, 2);
  x = {};
  BOOST_TEST(part.as_floats()[0] == 2);
}

BOOST_AUTO_TEST_SUITE_END()
