#include "tests/actors/link/stream_ends.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <random>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(stream_channel_cuts, with_shared_memory)

namespace {

/// A channel between two hosts. The test breaks and restores its connection.
struct breaking {
  codec system;
  std::unique_ptr<end_point> a;
  std::unique_ptr<end_point> b;

  breaking() {
    const auto sockets = new_pair();
    a = std::make_unique<end_point>(system.system(), sockets[0], false, 1 << 30, true);
    b = std::make_unique<end_point>(system.system(), sockets[1], false, 1 << 30, true);
    a->listen();
    b->listen();
  }

  static std::array<int, 2> new_pair() {
    std::array<int, 2> result{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, result.data()) == 0);
    const int small = 4096; // so that a record is written in many pieces
    for (const int s : result) {
      ::setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
      ::fcntl(s, F_SETFL, O_NONBLOCK);
    }
    return result;
  }

  void run_once() {
    a->run();
    b->run();
  }

  void cut() {
    ::shutdown(a->channel->socket(), SHUT_RDWR);
    for (int i = 0; i < 3; ++i)
      run_once();
    BOOST_TEST_REQUIRE(a->channel->cut());
    BOOST_TEST_REQUIRE(b->channel->cut());
    a->channel->release_socket();
    b->channel->release_socket();
  }

  /// Connects both ends in the way of a channel_host: `a` connects and sends a greeting, and `b`
  /// answers.
  void connect() {
    const auto sockets = new_pair();
    a->channel->resume(file_descriptor{sockets[0]}, nullptr, "token");
    stream_options plain;
    plain.wake = [] {};
    stream_channel stranger{system.system(), file_descriptor{sockets[1]}, plain};
    stranger.on_readable();
    BOOST_TEST_REQUIRE(stranger.greeting().token() == "token");
    b->channel->resume(stranger.release_socket(), &stranger.greeting(), "token");
  }
};

} // namespace

// Cuts the connection after n reads, for n = 1, 2, ... until a conversation ends before the cut.
// Each message arrives once, in order, and undamaged.
BOOST_AUTO_TEST_CASE(cut_anywhere) {
  constexpr std::uint64_t count = 12;
  bool reached = true;
  std::size_t cuts = 0;
  for (int after = 0; reached; ++after) {
    reached = false;
    breaking x;
    int reads = 0;
    for (std::uint64_t i = 1; i <= count; ++i) {
      x.a->send(i, patterned(i % 3 == 0 ? 30'000 : 100, i));
      x.b->send(i, patterned(i % 4 == 0 ? 50'000 : 200, i + 1));
    }
    for (int i = 0; i < 400; ++i) {
      if (reads++ == after) {
        x.cut();
        x.connect();
        reached = x.a->messages.size() < count || x.b->messages.size() < count;
        ++cuts;
      }
      x.run_once();
    }
    BOOST_TEST_REQUIRE(x.a->messages.size() == count);
    BOOST_TEST_REQUIRE(x.b->messages.size() == count);
    for (std::uint64_t i = 1; i <= count; ++i) {
      BOOST_TEST_REQUIRE(x.b->messages[i - 1].frame.id() == i);
      BOOST_TEST_REQUIRE(
        equal(x.b->messages[i - 1].data(), patterned(i % 3 == 0 ? 30'000 : 100, i)));
      BOOST_TEST_REQUIRE(x.a->messages[i - 1].frame.id() == i);
      BOOST_TEST_REQUIRE(
        equal(x.a->messages[i - 1].data(), patterned(i % 4 == 0 ? 50'000 : 200, i + 1)));
    }
  }
  BOOST_TEST(cuts > 10U);
}

// A peer reads everything but acknowledges nothing. So all data must be kept, up to a limit. Then
// the channel ends.
BOOST_AUTO_TEST_CASE(a_peer_that_never_acknowledges) {
  codec system;
  const auto sockets = breaking::new_pair();
  end_point a{system.system(), sockets[0], false, 1 << 30, true};
  a.listen();
  a.channel->limit({.window = 1 << 20});
  std::vector<char> read(1 << 16);
  const auto data = patterned(100'000);
  for (std::uint64_t i = 1; i <= 1'000; ++i) {
    a.send(i, data);
    for (int k = 0; k < 40; ++k) {
      a.run();
      while (::recv(sockets[1], read.data(), read.size(), MSG_DONTWAIT) > 0)
        ;
    }
    BOOST_TEST_REQUIRE(a.channel->waiting() <= (1U << 20));
  }
  BOOST_TEST(contains(a.closed, "more than 1 MiB"));
  BOOST_TEST(data.unique(), "nothing is kept");
  ::close(sockets[1]);
}

// While the connection is broken, more data is sent than the channel may keep. The channel must
// end, because it may not skip a message.
BOOST_AUTO_TEST_CASE(too_much_for_a_broken_connection) {
  breaking x;
  x.a->channel->limit({.window = 1 << 20});
  x.a->send(1, patterned(100));
  x.run_once();
  x.cut();
  for (std::uint64_t i = 2; i <= 40; ++i)
    x.a->send(i, patterned(100'000));
  x.connect();
  for (int i = 0; i < 400; ++i)
    x.run_once();
  BOOST_TEST(contains(x.a->closed, "more than 1 MiB"));
  for (std::size_t i = 0; i < x.b->messages.size(); ++i)
    BOOST_TEST(x.b->messages[i].frame.id() == i + 1);
}

BOOST_AUTO_TEST_CASE(cut_again_and_again) {
  breaking x;
  std::mt19937 random{5};
  std::uint64_t sent = 0;
  for (int i = 0; i < 2'000; ++i) {
    ++sent;
    x.a->send(sent, patterned(1 + random() % 40'000, sent));
    x.b->send(sent, patterned(1 + random() % 40, sent));
    for (auto n = random() % 4; n > 0; --n)
      x.run_once();
    if (random() % 3 == 0) {
      x.cut();
      // Sometimes, the next connection also breaks before it has carried any data.
      if (random() % 4 == 0) {
        const auto sockets = breaking::new_pair();
        x.a->channel->resume(file_descriptor{sockets[0]}, nullptr, "token");
        ::close(sockets[1]);
        x.a->run();
        BOOST_TEST_REQUIRE(x.a->channel->cut());
        x.a->channel->release_socket();
      }
      x.connect();
    }
  }
  for (int i = 0; i < 50'000 && x.b->messages.size() < sent; ++i)
    x.run_once();
  for (int i = 0; i < 50; ++i)
    x.run_once();
  BOOST_TEST_REQUIRE(x.a->messages.size() == sent);
  BOOST_TEST_REQUIRE(x.b->messages.size() == sent);
  for (std::uint64_t i = 0; i < sent; ++i) {
    BOOST_TEST_REQUIRE(x.a->messages[i].frame.id() == i + 1);
    BOOST_TEST_REQUIRE(x.b->messages[i].frame.id() == i + 1);
    const auto& data = x.b->messages[i].data();
    BOOST_TEST_REQUIRE(equal(data, patterned(data.size(), i + 1)));
  }
}

BOOST_AUTO_TEST_CASE(what_was_acknowledged_is_not_kept) {
  breaking x;
  auto data = patterned(100'000);
  x.a->send(1, data);
  BOOST_TEST(!data.unique());
  for (int i = 0; i < 200; ++i)
    x.run_once();
  BOOST_TEST(x.b->messages.size() == 1U);
  BOOST_TEST(data.unique());
}

BOOST_AUTO_TEST_CASE(no_other_socket) {
  breaking x;
  auto data = patterned(100'000);
  x.a->send(1, data);
  x.cut();
  x.a->channel->give_up("nobody answers");
  BOOST_TEST(x.a->closed == "nobody answers");
  BOOST_TEST(data.unique());
  BOOST_TEST(x.a->channel->finished());
}

BOOST_AUTO_TEST_CASE(a_peer_that_received_what_was_never_sent) {
  breaking x;
  x.cut();
  proto::Greeting wrong;
  wrong.set_token("token");
  wrong.set_received(5);
  const auto sockets = breaking::new_pair();
  x.b->channel->resume(file_descriptor{sockets[0]}, &wrong, "token");
  BOOST_TEST(contains(x.b->closed, "cannot have received"));
  ::close(sockets[1]);
}

BOOST_AUTO_TEST_CASE(a_silent_peer) {
  connection x{true};
  BOOST_TEST(x.a->channel->keep_alive(std::chrono::hours{1}));
  BOOST_TEST(!x.a->channel->keep_alive(std::chrono::nanoseconds{1}));
  // `b` is not silent: it has not read yet what `a` sent.
  BOOST_TEST(x.b->channel->keep_alive(std::chrono::nanoseconds{1}));
  x.run();
  BOOST_TEST(x.a->closed == "");
  breaking y;
  BOOST_TEST(y.a->channel->keep_alive(std::chrono::nanoseconds{1}), "it may come back");
  y.run_once();
  BOOST_TEST(y.a->channel->cut());
}

BOOST_AUTO_TEST_SUITE_END()
