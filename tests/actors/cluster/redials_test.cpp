#include "actors/cluster/redials.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(redials)

BOOST_AUTO_TEST_CASE(pauses_grow_up_to_a_limit_and_differ) {
  for (int attempts = -1; attempts < 40; ++attempts) {
    std::set<std::chrono::milliseconds> seen;
    for (std::uint64_t seed = 1; seed < 30; seed += 2) {
      auto random = seed;
      const auto pause = pause_before(attempts, random);
      const auto base = std::min(first_pause * (1 << std::clamp(attempts, 0, 6)), longest_pause);
      BOOST_TEST(pause.count() >= base.count() / 2);
      BOOST_TEST(pause.count() < base.count() * 3 / 2);
      BOOST_TEST(random != seed);
      seen.insert(pause);
    }
    BOOST_TEST(seen.size() > 5U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
