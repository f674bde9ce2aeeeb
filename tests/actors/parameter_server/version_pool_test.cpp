#include "actors/parameter_server/version_pool.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
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

// Versions that differ in few elements: a slot with an old version gets the changes that it missed.
BOOST_AUTO_TEST_CASE(changes) {
  constexpr std::size_t n = 1000;
  std::mt19937 random{3};
  for (const std::size_t slots : {2, 3, 6}) {
    troupe::version_pool pool{n, slots};
    std::vector<float> expected(n, 2);
    std::ranges::copy(expected, pool.initial().begin());
    std::deque<troupe::version_pool::snapshot> held;
    for (std::uint64_t v = 1; v < 2000; ++v) {
      // Readers hold versions, so the slots are not used in turn.
      if (random() % 3 == 0)
        held.push_back(pool.newest());
      while (held.size() > slots - 2 || (!held.empty() && random() % 4 == 0))
        held.pop_front();
      BOOST_TEST_REQUIRE(pool.begin());
      const auto kind = random() % 50;
      if (kind == 0) { // a version that changes everything
        std::ranges::fill(expected, static_cast<float>(v));
        std::ranges::copy(expected, pool.next().begin());
        pool.publish(v);
      } else {
        if (kind == 1) { // a version that is begun, and then dropped
          std::ranges::fill(pool.next(), -1.0F);
          BOOST_TEST_REQUIRE(pool.begin());
        }
        const std::size_t first = random() % n;
        const troupe::range where{first, std::min(n, first + random() % (v % 7 == 0 ? n : 5))};
        pool.copy_newest();
        const auto next = pool.next();
        BOOST_TEST_REQUIRE(std::ranges::equal(next, expected));
        for (auto i = where.begin; i < where.end; ++i)
          expected[i] = next[i] = static_cast<float>(v);
        pool.publish_changes(v, kind == 2 ? range_list{{0, n}} : range_list{where});
      }
      BOOST_TEST_REQUIRE(std::ranges::equal(pool.newest().data.as_floats(), expected));
      BOOST_TEST_REQUIRE(pool.version() == v);
    }
  }
}

// The time for a version does not depend on elements that do not change: they are not copied.
BOOST_AUTO_TEST_CASE(only_changes_are_copied) {
  troupe::version_pool pool{100, 2};
  for (std::uint64_t v = 1; v <= 2; ++v)
    publish(pool, v);
  BOOST_TEST_REQUIRE(pool.begin());
  pool.copy_newest();
  pool.next()[7] = 9;
  pool.publish_changes(3, {{7, 8}}); // in truth, this version may differ in other elements, too
  BOOST_TEST_REQUIRE(pool.begin());
  pool.copy_newest();
  const auto found = pool.next();
  BOOST_TEST(found[7] == 9);
  BOOST_TEST(found[8] == 2);
  pool.publish_changes(4, {});
  // The slot of version 3 lacks version 4, which changed nothing.
  BOOST_TEST_REQUIRE(pool.begin());
  const_cast<float*>(pool.published().data())[50] = -5; // not among the changes, so not copied
  pool.copy_newest();
  BOOST_TEST(pool.next()[50] == 2);
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
