#include "actors/parameter_server/version_pool.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <thread>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(version_pool)

namespace {

bool all_are(std::span<const float> x, float value) {
  return std::ranges::all_of(x, [value](float y) { return y == value; });
}

void publish(version_pool& pool, std::uint64_t version) {
  BOOST_REQUIRE(pool.begin());
  std::ranges::fill(pool.next(), static_cast<float>(version));
  pool.publish(version);
}

/// What one reader has observed: how many versions it read, and what was wrong with them.
struct reader_report {
  std::uint64_t snapshots = 0;
  std::uint64_t torn = 0;
  std::uint64_t changed_while_held = 0;
  std::uint64_t went_back = 0;
  std::uint64_t last = 0;
};

/// Takes snapshots until the writer has published version `until`. Keeps the newest `hold` of them,
/// so that the pool cannot use their memory again.
reader_report read(const version_pool& pool, std::size_t hold, std::uint64_t until) {
  reader_report result;
  std::deque<version_pool::snapshot> held;
  while (result.last < until) {
    held.push_back(pool.newest());
    const auto& x = held.back();
    ++result.snapshots;
    result.torn += all_are(x.data.as_floats(), static_cast<float>(x.version)) ? 0 : 1;
    result.went_back += x.version < result.last ? 1 : 0;
    result.last = x.version;
    if (held.size() > hold) {
      const auto& old = held.front();
      result.changed_while_held +=
        all_are(old.data.as_floats(), static_cast<float>(old.version)) ? 0 : 1;
      held.pop_front();
    }
  }
  return result;
}

/// Runs one writer, and readers that hold up to `hold` + 1 versions each.
void stress(std::size_t elements, std::size_t readers, std::size_t hold, std::size_t slots) {
  constexpr std::uint64_t versions = 1'500;
  version_pool pool{elements, slots};
  std::vector<reader_report> reports(readers);
  std::vector<std::thread> threads;
  for (auto& report : reports)
    threads.emplace_back([&] { report = read(pool, hold, versions); });
  for (std::uint64_t v = 1; v <= versions; ++v) {
    while (!pool.begin())
      std::this_thread::yield();
    std::ranges::fill(pool.next(), static_cast<float>(v));
    pool.publish(v);
  }
  for (auto& t : threads)
    t.join();
  for (const auto& x : reports) {
    BOOST_TEST(x.snapshots > 0u);
    BOOST_TEST(x.torn == 0u);
    BOOST_TEST(x.changed_while_held == 0u);
    BOOST_TEST(x.went_back == 0u);
    BOOST_TEST(x.last == versions);
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(version_zero) {
  troupe::version_pool pool{5, 3};
  BOOST_TEST(pool.elements() == 5u);
  BOOST_TEST(pool.version() == 0u);
  BOOST_TEST(all_are(pool.newest().data.as_floats(), 0.0F));
  std::ranges::fill(pool.initial(), 1.5F);
  BOOST_TEST(all_are(pool.newest().data.as_floats(), 1.5F));
  BOOST_TEST(all_are(pool.published(), 1.5F));
  BOOST_TEST(pool.newest().data.size() == 20u);
}

BOOST_AUTO_TEST_CASE(publishing) {
  troupe::version_pool pool{7, 3};
  const auto before = pool.newest();
  BOOST_REQUIRE(pool.begin());
  std::ranges::fill(pool.next(), 1.0F);
  BOOST_TEST(pool.newest().version == 0u, "begun is not published");
  BOOST_TEST(all_are(pool.newest().data.as_floats(), 0.0F));
  BOOST_TEST((pool.next().data() != pool.published().data()));
  pool.publish(1);
  BOOST_TEST(pool.version() == 1u);
  BOOST_TEST(pool.newest().version == 1u);
  BOOST_TEST(all_are(pool.newest().data.as_floats(), 1.0F));
  BOOST_TEST(before.version == 0u);
  BOOST_TEST(all_are(before.data.as_floats(), 0.0F));
}

BOOST_AUTO_TEST_CASE(pulls_share_the_memory) {
  troupe::version_pool pool{1000, 2};
  const auto a = pool.newest();
  const auto b = pool.newest();
  BOOST_TEST(a.data.data() == b.data.data());
  BOOST_TEST((a.data.as_floats().data() == pool.published().data()));
}

BOOST_AUTO_TEST_CASE(the_writer_waits_when_all_versions_are_held) {
  for (std::size_t slots = 2; slots <= 5; ++slots) {
    troupe::version_pool pool{3, slots};
    std::vector<troupe::version_pool::snapshot> held;
    std::set<const std::byte*> memory;
    for (std::uint64_t v = 1; v < slots; ++v) {
      held.push_back(pool.newest());
      publish(pool, v);
    }
    held.push_back(pool.newest());
    for (const auto& x : held)
      memory.insert(x.data.data());
    BOOST_TEST(memory.size() == slots);
    BOOST_TEST(!pool.begin());
    // A version is given back, but it is the newest one, which the pool itself keeps. So no slot
    // becomes free.
    held.pop_back();
    BOOST_TEST(!pool.begin());
    // A slice keeps the whole version alive.
    auto part = held.front().data.slice_floats(1, 1);
    held.erase(held.begin());
    BOOST_TEST(!pool.begin());
    part = {};
    for (std::uint64_t v = slots; v < 3 * slots; ++v) {
      publish(pool, v);
      memory.insert(pool.newest().data.data());
    }
    BOOST_TEST(memory.size() == slots, "no memory but the slots");
    for (const auto& x : held)
      BOOST_TEST(all_are(x.data.as_floats(), static_cast<float>(x.version)));
  }
}

BOOST_AUTO_TEST_CASE(no_elements) {
  troupe::version_pool pool{0, 2};
  const auto held = pool.newest();
  for (std::uint64_t v = 1; v <= 10; ++v) {
    BOOST_REQUIRE(pool.begin());
    BOOST_TEST(pool.next().empty());
    pool.publish(v);
    BOOST_TEST(pool.newest().version == v);
    BOOST_TEST(pool.newest().data.empty());
  }
}

BOOST_AUTO_TEST_CASE(readers_and_a_writer) {
  stress(1, 1, 0, 3);
  stress(257, 3, 0, 5);
  stress(257, 3, 2, 3 * 3 + 2);
}

BOOST_AUTO_TEST_CASE(readers_and_a_writer_short_of_slots) {
  // The readers may hold more versions than there are slots. Then the writer must wait, and the
  // readers still see whole versions.
  stress(64, 3, 0, 2);
}

BOOST_AUTO_TEST_CASE(readers_and_a_writer_of_nothing) {
  stress(0, 3, 1, 4);
}

BOOST_AUTO_TEST_SUITE_END()
