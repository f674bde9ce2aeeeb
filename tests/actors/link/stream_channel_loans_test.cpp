#include "tests/actors/link/stream_ends.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(stream_channel_loans, with_shared_memory)

BOOST_AUTO_TEST_CASE(a_lent_payload_is_not_used_again_before_it_came_back) {
  connection x{true};
  auto data = patterned(1 << 20);
  x.a->send(1, data);
  x.run();
  BOOST_TEST_REQUIRE(x.b->messages.size() == 1U);
  auto received = x.b->messages[0].data();
  x.b->messages.clear();
  BOOST_TEST(received.data() != data.data(), "another mapping");
  BOOST_TEST(!received.unique(), "not to be written");
  BOOST_TEST(!data.unique());
  data.mutable_data()[5] = std::byte{77};
  BOOST_TEST((received.data()[5] == std::byte{77}), "the same memory");
  const auto part = received.slice(1000, 10);
  received = {};
  x.run();
  BOOST_TEST(!data.unique(), "a part is still held");
  const_cast<payload&>(part) = {};
  x.run();
  BOOST_TEST(data.unique());
}

BOOST_AUTO_TEST_CASE(memory_is_opened_once_and_forgotten) {
  connection x{true};
  const auto before = open_files();
  for (std::uint64_t i = 1; i <= 100; ++i) {
    x.a->send(i, patterned(1 << 20, i));
    x.run();
    BOOST_TEST_REQUIRE(x.b->messages.size() == 1U);
    BOOST_TEST_REQUIRE(equal(x.b->messages[0].data(), patterned(1 << 20, i)));
    x.b->messages.clear();
    x.run();
  }
  BOOST_TEST(open_files() <= before + 4);
}

BOOST_AUTO_TEST_CASE(what_was_borrowed_is_copied_on) {
  connection first{true};
  connection second{true};
  first.a->send(1, patterned(100'000));
  first.run();
  second.a->send(2, first.b->messages.at(0).data());
  first.b->messages.clear();
  first.run();
  second.run();
  BOOST_TEST(equal(second.b->messages.at(0).data(), patterned(100'000)));
}

// Without a descriptor for it, there is no shared memory: the payload is written to the socket.
BOOST_AUTO_TEST_CASE(no_memory_to_share) {
  constexpr std::size_t unusual = 5'000'003; // Not in the pool.
  connection x{true};
  rlimit before{};
  BOOST_TEST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  BOOST_TEST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  x.a->send(1, patterned(unusual));
  ::setrlimit(RLIMIT_NOFILE, &before);
  x.a->send(2, patterned(10));
  for (int i = 0; i < 5; ++i)
    x.run();
  BOOST_TEST_REQUIRE(x.b->messages.size() == 2U);
  BOOST_TEST(!x.b->messages[0].frame.has_loan());
  BOOST_TEST(equal(x.b->messages[0].data(), patterned(unusual)));
  BOOST_TEST(x.b->closed == "");
}

BOOST_AUTO_TEST_CASE(the_end_of_a_link_leaves_loans) {
  connection x{true};
  auto data = patterned(1 << 20);
  x.a->send(1, data);
  x.run();
  auto received = x.b->messages.at(0).data();
  x.b->messages.clear();
  x.a->channel->end();
  x.run();
  BOOST_TEST(contains(x.b->closed, "ended"));
  x.b->channel->end();
  x.run();
  BOOST_TEST(!x.a->channel->finished());
  BOOST_TEST(!x.b->channel->finished());
  BOOST_TEST(!data.unique());
  received = {};
  x.run();
  BOOST_TEST(data.unique());
  BOOST_TEST(x.a->channel->finished());
  BOOST_TEST(x.b->channel->finished());
}

BOOST_AUTO_TEST_CASE(a_dead_peer_has_let_go) {
  connection x{true};
  auto data = patterned(1 << 20);
  x.a->send(1, data);
  x.a->run();
  x.b = nullptr;
  x.a->run();
  BOOST_TEST(data.unique());
  BOOST_TEST(x.a->closed != "");
  BOOST_TEST(x.a->channel->finished());
  x.a->send(2, data);
  BOOST_TEST(data.unique(), "nothing is lent any more");
}

BOOST_AUTO_TEST_SUITE_END()
