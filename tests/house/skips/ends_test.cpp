#include "tests/support/skip.hpp"

#include <iostream>
#include <thread>

#include <boost/test/unit_test.hpp>

#include <sys/mman.h>
#include <unistd.h>

using troupe::test::skip;

BOOST_AUTO_TEST_SUITE(passes)

BOOST_AUTO_TEST_CASE(says_skipped) {
  std::cout << "skipped: only a word\n";
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(skips)

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(skips_and_fails)

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_CASE(fails) {
  BOOST_TEST(false);
}

BOOST_AUTO_TEST_SUITE_END()

// CTest has two entries for this suite: one for the case that may be skipped, and one for the
// others.
BOOST_AUTO_TEST_SUITE(mixed)

BOOST_AUTO_TEST_CASE(passes) {
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(leaves_a_descriptor)

BOOST_AUTO_TEST_CASE(forgets_to_close) {
  BOOST_TEST(::dup(1) > 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(leaves_a_thread)

BOOST_AUTO_TEST_CASE(forgets_to_join) {
  std::thread{[] { ::pause(); }}.detach();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(leaves_memory)

// Leaves a mapping of shared memory behind. It is read-only, like a mapping of memory that another
// process owns.
BOOST_AUTO_TEST_CASE(forgets_to_unmap) {
  const int file = ::memfd_create("test", MFD_CLOEXEC);
  BOOST_TEST(::ftruncate(file, 4096) == 0);
  BOOST_TEST(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED);
  ::close(file);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(leaves_nothing)

// Two things may remain at the end of a case without an error: a thread that is ending, and memory
// of the pool of buffers.
BOOST_AUTO_TEST_CASE(cleans_up) {
  std::thread{[] { ::usleep(50'000); }}.detach();
  ::close(::dup(1));
  const int own = ::memfd_create("troupe", MFD_CLOEXEC);
  BOOST_TEST(::ftruncate(own, 4096) == 0);
  BOOST_TEST(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) != MAP_FAILED);
}

BOOST_AUTO_TEST_SUITE_END()
