#include "messages/buffer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/resource.h>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(buffer)

BOOST_AUTO_TEST_CASE(alignment_and_size) {
  for (const std::size_t size : {1, 63, 64, 65, 4095, 4096, 4097, 100'003}) {
    auto x = payload::allocate(size);
    BOOST_TEST(x.size() == size);
    BOOST_TEST(!x.empty());
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(x.data()) % 64 == 0u);
    // Writes all of it, so that a sanitizer checks that the memory belongs to the buffer.
    std::memset(x.mutable_data(), 0x5a, size);
  }
  BOOST_TEST(payload::floats(10).size() == 40u);
  BOOST_TEST(payload::floats(10).as_floats().size() == 10u);
}

BOOST_AUTO_TEST_CASE(nothing) {
  for (const auto& x : {payload{}, payload::allocate(0), payload::floats(0)}) {
    BOOST_TEST(x.empty());
    BOOST_TEST(x.data() == nullptr);
    BOOST_TEST(x.bytes().empty());
    BOOST_TEST(x.as_floats().empty());
    BOOST_TEST(!x.unique());
    BOOST_TEST(x.slice(0, 0).empty());
  }
  auto x = payload::allocate(10);
  const auto none = x.slice(10, 0);
  BOOST_TEST(none.empty());
  BOOST_TEST(x.unique(), "an empty slice holds nothing");
}

BOOST_AUTO_TEST_CASE(released_memory_is_used_again) {
  auto x = payload::allocate(777'777);
  const auto* address = x.data();
  auto other = payload::allocate(777'777);
  BOOST_TEST(other.data() != address);
  x = {};
  auto again = payload::allocate(777'777);
  BOOST_TEST(again.data() == address);
  BOOST_TEST(again.unique());
  again = {};
  // A buffer is also used again for nearly the same size, because slices of a vector differ by one
  // element.
  BOOST_TEST(payload::allocate(777'773).data() == address);
}

BOOST_AUTO_TEST_CASE(slices_keep_the_memory) {
  auto x = payload::floats(1000);
  for (std::size_t i = 0; i < 1000; ++i)
    x.as_mutable_floats()[i] = static_cast<float>(i);
  const auto* address = x.data();
  auto slice = x.slice_floats(100, 50).slice_floats(10, 5);
  x = {};
  BOOST_TEST(slice.data() == address + 440);
  BOOST_TEST(payload::floats(1000).data() != address, "still held by the slice");
  BOOST_TEST(slice.as_floats()[0] == 110.0F);
  BOOST_TEST(slice.as_floats().size() == 5u);
  BOOST_TEST(slice.unique());
  slice = {};
}

BOOST_AUTO_TEST_CASE(who_holds_it) {
  auto x = payload::allocate(10);
  BOOST_TEST(x.unique());
  {
    const auto copy = x;
    BOOST_TEST(!x.unique());
    BOOST_TEST(copy.data() == x.data());
  }
  BOOST_TEST(x.unique());
  {
    const auto slice = x.slice(3, 4);
    BOOST_TEST(!x.unique());
  }
  auto moved = std::move(x);
  BOOST_TEST(moved.unique());
  BOOST_TEST(x.empty()); // NOLINT(bugprone-use-after-move): moved-from payloads are empty
  BOOST_TEST(x.data() == nullptr);
  auto& self = moved;
  moved = self;
  BOOST_TEST(moved.unique());
  BOOST_TEST(moved.size() == 10u);
  moved = payload::allocate(20);
  BOOST_TEST(moved.size() == 20u);
}

constexpr std::size_t page = 4096;

/// Takes `count` buffers of this size, writes to all of them, and releases them.
void use(buffer_pool& pool, std::size_t count, std::size_t bytes) {
  std::vector<troupe::buffer*> taken;
  for (std::size_t i = 0; i < count; ++i) {
    taken.push_back(pool.take(bytes));
    std::memset(taken.back()->data(), 1, bytes);
  }
  for (auto* x : taken)
    x->deref();
}

/// Number of page faults so far: pages that the system has given to this process, or mapped into
/// it.
long page_faults() {
  rusage x{};
  getrusage(RUSAGE_SELF, &x);
  return x.ru_minflt;
}

BOOST_AUTO_TEST_CASE(as_much_is_kept_as_was_in_use) {
  buffer_pool pool{4 * page};
  std::vector<troupe::buffer*> taken;
  for (int i = 0; i < 10; ++i)
    taken.push_back(pool.take(page));
  BOOST_TEST(pool.retained() == 0u);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i]->deref();
    BOOST_TEST(pool.retained() == (i + 1) * page);
  }
  auto* small = pool.take(1);
  BOOST_TEST(small->capacity() == page);
  BOOST_TEST(small->refs() == 1u);
  BOOST_TEST(pool.retained() == 9 * page);
  small->deref();
}

// A step needs 16 times as much memory as the pool always keeps, in buffers of different sizes. The
// pool must keep this memory from step to step.
BOOST_AUTO_TEST_CASE(steps_of_a_large_model_fault_in_no_pages) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  buffer_pool pool{mebibyte};
  const auto step = [&] {
    use(pool, 8, mebibyte);
    auto* held = pool.take(5 * mebibyte);
    use(pool, 3, mebibyte + page);
    held->deref();
  };
  step();
  const auto before = page_faults();
  for (int i = 0; i < 20; ++i)
    step();
  // With fresh memory, a step would cause more than 2,000 page faults.
  BOOST_TEST(page_faults() - before < 200);
}

// Buffers of sizes that are not used any more are freed. This makes room for the sizes that are
// used now.
BOOST_AUTO_TEST_CASE(sizes_that_are_no_longer_used_are_freed) {
  buffer_pool pool{64 * page};
  use(pool, 64, page);
  use(pool, 4, 8 * page);
  const auto before = page_faults();
  for (int i = 0; i < 500; ++i)
    use(pool, 4, 8 * page);
  BOOST_TEST(page_faults() - before < 100, "fresh memory would be 16,000 pages");
  BOOST_TEST(pool.retained() == 64 * page);
}

BOOST_AUTO_TEST_CASE(retained_memory_is_bounded) {
  buffer_pool pool{4 * page};
  use(pool, 1, 100 * page);
  BOOST_TEST(pool.retained() == 100 * page);
  // After these calls, the large buffer has not been used for a long time, so it is freed.
  for (int i = 0; i < 5'000; ++i)
    use(pool, 1, page);
  BOOST_TEST(pool.retained() == page);
  use(pool, 10, page);
  BOOST_TEST(pool.retained() == 10 * page);
  for (int i = 0; i < 5'000; ++i)
    use(pool, 1, page);
  BOOST_TEST(pool.retained() == 4 * page, "so much is kept in any case");
  buffer_pool none{0};
  for (int i = 0; i < 5'000; ++i)
    use(none, 1, page);
  BOOST_TEST(none.retained() == page);
}

// Sizes may differ in each step, for example if a batch reads another number of rows of a table.
BOOST_AUTO_TEST_CASE(sizes_that_always_differ_share_buffers) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  buffer_pool pool{mebibyte};
  for (std::size_t i = 0; i < 250; ++i)
    use(pool, 1, mebibyte + i * page);
  BOOST_TEST(pool.retained() <= 17 * 2 * mebibyte);
}

// A shared buffer needs a file descriptor. Beyond a limit, buffers are not shared, and links write
// them to their sockets. After a shared buffer is freed, its descriptor can be used again.
BOOST_AUTO_TEST_CASE(shared_buffers_are_bounded) {
  constexpr std::size_t most = 512;
  buffer_pool pool{0};
  pool.share_from(page);
  const auto shared = [](const troupe::buffer* x) { return x->shared().descriptor >= 0; };
  std::vector<troupe::buffer*> taken;
  for (std::size_t i = 0; i < most + 50; ++i)
    taken.push_back(pool.take(page));
  BOOST_TEST(std::ranges::count_if(taken, shared) == std::ptrdiff_t{most});
  BOOST_TEST(!shared(taken.back()));
  for (auto* x : taken)
    x->deref();
  taken.clear();
  // Meanwhile, the pool frees buffers that are not used.
  for (int i = 0; i < 5'000; ++i)
    use(pool, 1, 3 * page);
  auto* again = pool.take(5 * page);
  BOOST_TEST(shared(again));
  again->deref();
}

BOOST_AUTO_TEST_CASE(new_memory_is_zeroed) {
  buffer_pool pool{0};
  auto* x = pool.take(10'000);
  BOOST_TEST(std::all_of(x->data(), x->data() + x->capacity(),
                         [](std::byte b) { return b == std::byte{0}; }));
  x->deref();
}

// Each thread writes a pattern to its buffer, passes it to the next thread through a slot, and
// checks the buffer that it receives. If the same bytes had two owners, this test or
// ThreadSanitizer would find it.
BOOST_AUTO_TEST_CASE(threads) {
  constexpr std::size_t count = 4;
  constexpr std::uint32_t rounds = 3'000;
  std::mutex mutex;
  std::array<payload, count> slots;
  for (auto& x : slots)
    x = payload::allocate(1);
  std::array<std::uint32_t, count> torn{};
  const auto body = [&](std::size_t self) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      auto own = payload::allocate(256 * (1 + (round + self) % 3 * 20));
      const auto mark = static_cast<std::byte>(round * 7 + self);
      std::memset(own.mutable_data(), static_cast<int>(mark), own.size());
      payload found;
      {
        std::lock_guard guard{mutex};
        found = slots[(self + 1) % count];
        slots[self] = own.slice(1, own.size() - 1);
      }
      const auto bytes = found.bytes();
      torn[self] += std::ranges::all_of(bytes, [&](auto b) { return b == bytes[0]; }) ? 0 : 1;
      torn[self] += std::ranges::all_of(own.bytes(), [&](auto b) { return b == mark; }) ? 0 : 1;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back(body, i);
  for (auto& t : threads)
    t.join();
  BOOST_TEST(std::ranges::count(torn, 0u) == 4);
}

BOOST_AUTO_TEST_SUITE_END()
