#include "apps/troupe/processors.hpp"

#include <boost/test/unit_test.hpp>

#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(processors)

BOOST_AUTO_TEST_CASE(each_worker_gets_its_own_if_none_are_to_spare) {
  using list = std::vector<unsigned>;
  BOOST_TEST((processors_of(2, {0, 1}) == list{0, 1}));
  BOOST_TEST((processors_of(2, {3, 8, 9}) == list{3, 8}));
  BOOST_TEST((processors_of(3, {0, 1, 2, 3, 4}) == list{0, 1, 2}));
  BOOST_TEST(processors_of(2, {0, 1, 2, 3}).empty()); // two processors for each process
  BOOST_TEST(processors_of(3, {0, 1}).empty());       // there are too few processors
  BOOST_TEST(processors_of(1, {0}).empty());
  BOOST_TEST(processors_of(2, {}).empty());
}

BOOST_AUTO_TEST_CASE(a_bound_thread_and_its_children) {
  const auto before = allowed_processors();
  BOOST_TEST_REQUIRE(!before.empty());
  std::vector<unsigned> bound;
  std::vector<unsigned> child;
  int policy = -1;
  std::thread{[&] {
    bind_to(before.back());
    bound = allowed_processors();
    std::thread{[&] {
      child = allowed_processors();
      policy = ::sched_getscheduler(0);
    }}.join();
  }}.join();
  BOOST_TEST((bound == std::vector<unsigned>{before.back()}));
  BOOST_TEST((child == bound));
  BOOST_TEST(policy == SCHED_BATCH);
  BOOST_TEST(::sched_getscheduler(0) == SCHED_OTHER);
  BOOST_TEST((allowed_processors() == before));
}

BOOST_AUTO_TEST_CASE(a_processor_that_does_not_exist) {
  BOOST_CHECK_THROW(bind_to(1'000'000), std::system_error);
}

BOOST_AUTO_TEST_SUITE_END()
