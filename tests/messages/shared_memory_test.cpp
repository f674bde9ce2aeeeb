#include "messages/shared_memory.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(memory_of_several_processes)

namespace {

constexpr std::size_t bytes = 8192;

} // namespace

BOOST_AUTO_TEST_CASE(readers_see_what_the_owner_writes) {
  const auto owned = shared_memory::create(bytes);
  BOOST_TEST_REQUIRE(!!owned);
  const auto seen = shared_memory::open(::dup(owned.file()), bytes);
  BOOST_TEST_REQUIRE(!!seen);
  owned.data()[bytes - 1] = std::byte{7};
  BOOST_TEST((seen.data()[bytes - 1] == std::byte{7}));
}

// A process that gets the descriptor can read the memory, but cannot change or shrink it.
BOOST_AUTO_TEST_CASE(only_the_owner_writes) {
  const auto owned = shared_memory::create(bytes);
  BOOST_TEST_REQUIRE(!!owned);
  owned.data()[0] = std::byte{1};
  const int file = owned.file();
  BOOST_TEST((::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED));
  BOOST_TEST(::pwrite(file, "x", 1, 0) == -1);
  BOOST_TEST(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) == -1);
  BOOST_TEST(::ftruncate(file, 0) == -1);
  BOOST_TEST(::ftruncate(file, 2 * bytes) == -1);
  BOOST_TEST((owned.data()[0] == std::byte{1}));
}

BOOST_AUTO_TEST_CASE(files_that_are_not_like_this) {
  BOOST_TEST(!shared_memory::open(::open("/dev/null", O_RDONLY | O_CLOEXEC), bytes));
  BOOST_TEST(!shared_memory::open(-1, bytes));
  const auto owned = shared_memory::create(bytes);
  BOOST_TEST(!shared_memory::open(::dup(owned.file()), bytes + 1));
  BOOST_TEST(!shared_memory::open(::dup(owned.file()), 0));
}

BOOST_AUTO_TEST_SUITE_END()
