#include "tests/actors/link/stream_ends.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>

#include <sys/resource.h>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(stream_channel_loans, with_shared_memory)

namespace {

/// While it exists, lowers a resource limit of this process.
class lower_limit {
public:
  lower_limit(__rlimit_resource what, rlim_t value) : what_(what) {
    BOOST_TEST_REQUIRE(::getrlimit(what_, &before_) == 0);
    const rlimit now{value, before_.rlim_max};
    BOOST_TEST_REQUIRE(::setrlimit(what_, &now) == 0);
  }
  ~lower_limit() { ::setrlimit(what_, &before_); }
  lower_limit(const lower_limit&) = delete;
  lower_limit& operator=(const lower_limit&) = delete;

private:
  __rlimit_resource what_;
  rlimit before_{};
};

} // namespace

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

// The process cannot open another file descriptor for shared memory. So the payload is written to
// the socket instead.
BOOST_AUTO_TEST_CASE(no_memory_to_share) {
  constexpr std::size_t unusual = 5'000'003; // a size that the pool does not have
  connection x{true};
  {
    const lower_limit no_files{RLIMIT_NOFILE, 0};
    x.a->send(1, patterned(unusual));
  }
  x.a->send(2, patterned(10));
  for (int i = 0; i < 5; ++i)
    x.run();
  BOOST_TEST_REQUIRE(x.b->messages.size() == 2U);
  BOOST_TEST(!x.b->messages[0].frame.has_loan());
  BOOST_TEST(equal(x.b->messages[0].data(), patterned(unusual)));
  BOOST_TEST(x.b->closed == "");
}

// The system has no memory for a new shared file (fallocate fails). So the payload is written to
// the socket instead. Later payloads are shared again.
BOOST_AUTO_TEST_CASE(no_room_for_shared_memory) {
  constexpr std::size_t unusual = 6'000'003; // a size that the pool does not have
  connection x{true};
  const auto before = open_files();
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    const lower_limit small_files{RLIMIT_FSIZE, 100'000};
    x.a->send(1, patterned(unusual));
  }
  std::signal(SIGXFSZ, handler);
  for (int i = 0; i < 5; ++i)
    x.run();
  BOOST_TEST(open_files() == before, "no file is left");
  constexpr std::size_t other = 7'000'003;
  x.a->send(2, patterned(other));
  x.run();
  BOOST_TEST_REQUIRE(x.b->messages.size() == 2U);
  BOOST_TEST(!x.b->messages[0].frame.has_loan());
  BOOST_TEST(equal(x.b->messages[0].data(), patterned(unusual)));
  BOOST_TEST(x.b->messages[1].frame.has_loan());
  BOOST_TEST(equal(x.b->messages[1].data(), patterned(other)));
  BOOST_TEST(x.b->closed == "");
}

// The receiver cannot open another file, so it does not get the descriptor of the shared memory and
// cannot read the message. It ends the link with this reason, and the sender gets its memory back.
BOOST_AUTO_TEST_CASE(a_receiver_without_descriptors) {
  connection x{true};
  auto data = patterned(8'000'003); // not in the pool, so it is a new file for the receiver
  x.a->send(1, data);
  x.a->run();
  {
    const lower_limit no_files{RLIMIT_NOFILE, 0};
    x.b->run();
  }
  BOOST_TEST(x.b->messages.empty());
  BOOST_TEST(contains(x.b->closed, "this process cannot open more files (`ulimit -n`)"),
             x.b->closed);
  x.b = nullptr;
  x.a->run();
  BOOST_TEST(x.a->closed != "");
  BOOST_TEST(data.unique());
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
