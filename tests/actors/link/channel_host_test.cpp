#include "actors/link/channel_host.hpp"

#include "actors/link/sockets.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <new>
#include <random>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 20s;

/// One end of a connection, and what has happened to it.
struct listener {
  std::promise<std::string> settled;
  std::promise<std::uint64_t> first;
  std::promise<std::string> closed;
  std::shared_ptr<stream_channel> channel;

  channel_host::on_channel handler() {
    return [this](const channel_host::channel_ptr& x, const std::string& problem) {
      channel = x;
      if (x)
        x->listen({
          [this](const proto::Frame& frame, const caf::message&) { first.set_value(frame.id()); },
          [this](const std::string& reason) { closed.set_value(reason); },
        });
      settled.set_value(problem);
    };
  }
};

template <class T>
T get(std::promise<T>& x) {
  auto future = x.get_future();
  BOOST_REQUIRE(future.wait_for(patience) == std::future_status::ready);
  return future.get();
}

void send(stream_channel& x, std::uint64_t id) {
  proto::Frame frame;
  frame.set_id(id);
  x.send(frame, caf::make_message(proto::Segment{}, payload::allocate(100'000)));
}

channel_host_options by_tcp() {
  channel_host_options result;
  result.address = "127.0.0.1";
  result.local = false;
  return result;
}

void converse(const channel_host_options& how) {
  codec system;
  listener a;
  listener b;
  channel_host dialling{system.system(), how};
  channel_host dialled{system.system(), how};
  dialling.connect(dialled.offer(b.handler()), how.address, a.handler());
  BOOST_TEST(get(a.settled) == "");
  BOOST_TEST(get(b.settled) == "");
  send(*a.channel, 7);
  BOOST_TEST(get(b.first) == 7U);
  send(*b.channel, 8);
  BOOST_TEST(get(a.first) == 8U);
  a.channel->end();
  BOOST_TEST(contains(get(b.closed), "ended"));
  dialling.stop();
  dialled.stop();
}

} // namespace

BOOST_AUTO_TEST_SUITE(channel_hosts)

BOOST_AUTO_TEST_CASE(on_one_host) {
  converse({});
}

BOOST_AUTO_TEST_CASE(by_tcp_between_hosts) {
  converse(by_tcp());
}

// An end sends more bytes than the system buffers and then closes. The peer is busy for longer than
// a host waits by default. All bytes must still arrive.
BOOST_AUTO_TEST_CASE(what_was_said_last_arrives) {
  constexpr std::uint64_t count = 400;
  codec system;
  std::atomic<std::uint64_t> received = 0;
  listener a;
  auto how = by_tcp();
  how.last_words = patience;
  how.outlived = true;
  channel_host dialled{system.system(), by_tcp()};
  channel_host dialling{system.system(), how};
  const auto count_slowly = [&](const channel_host::channel_ptr& x, const std::string&) {
    x->listen({
      [&](const proto::Frame&, const caf::message&) {
        if (received == 0)
          std::this_thread::sleep_for(600ms);
        ++received;
      },
      [](const std::string&) {},
    });
  };
  dialling.connect(dialled.offer(count_slowly), "127.0.0.1", a.handler());
  BOOST_TEST_REQUIRE(get(a.settled) == "");
  for (std::uint64_t i = 1; i <= count; ++i)
    send(*a.channel, i);
  dialling.stop();
  BOOST_TEST(received == count);
}

// A peer still reads shared memory after the owner has ended its connections. Until the peer
// releases it, nobody may write to this memory.
BOOST_AUTO_TEST_CASE(memory_that_a_peer_still_reads) {
  constexpr std::size_t size = 1 << 20;
  codec system;
  std::promise<payload> borrowed;
  listener a;
  channel_host_options how;
  how.last_words = 50ms;
  how.outlived = true;
  channel_host dialled{system.system(), {}};
  {
    channel_host dialling{system.system(), how};
    const auto keep = [&](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [&](const proto::Frame&, const caf::message& content) {
          borrowed.set_value(content.get_as<payload>(1));
        },
        [](const std::string&) {},
      });
    };
    dialling.connect(dialled.offer(keep), "", a.handler());
    BOOST_TEST_REQUIRE(get(a.settled) == "");
    auto own = payload::allocate(size);
    std::fill_n(own.mutable_data(), size, std::byte{7});
    a.channel->send({}, caf::make_message(proto::Segment{}, std::move(own)));
  }
  a.channel = nullptr;
  const auto read = get(borrowed);
  for (int i = 0; i < 100; ++i) {
    auto other = payload::allocate(size);
    std::fill_n(other.mutable_data(), size, std::byte{9});
  }
  BOOST_TEST(std::ranges::count(read.bytes(), std::byte{7}) == static_cast<std::ptrdiff_t>(size));
}

// Sends messages in both directions while the connection is broken again and again.
BOOST_AUTO_TEST_CASE(connections_that_break) {
  codec system;
  std::atomic<std::uint64_t> next_a = 1;
  std::atomic<std::uint64_t> next_b = 1;
  std::atomic<int> wrong = 0;
  channel_host dialling{system.system(), by_tcp()};
  channel_host dialled{system.system(), by_tcp()};
  std::promise<channel_host::channel_ptr> a;
  std::promise<channel_host::channel_ptr> b;
  const auto listen = [&](auto& promise, auto& next) {
    return [&](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [&](const proto::Frame& frame, const caf::message&) {
          wrong += frame.id() == next ? 0 : 1;
          ++next;
        },
        [&](const std::string&) { ++wrong; },
      });
      promise.set_value(x);
    };
  };
  dialling.connect(dialled.offer(listen(b, next_b)), "127.0.0.1", listen(a, next_a));
  const auto x = get(a);
  const auto y = get(b);
  constexpr std::uint64_t count = 600;
  std::mt19937 random{1};
  for (std::uint64_t i = 1; i <= count; ++i) {
    send(*x, i);
    send(*y, i);
    // Breaks the connection. If it has already been restored with a new socket, this only breaks
    // the old socket.
    if (i % 20 == 0)
      ::shutdown((random() % 2 == 0 ? x : y)->socket(), SHUT_RDWR);
    std::this_thread::sleep_for(1ms);
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while ((next_a <= count || next_b <= count) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);
  BOOST_TEST(next_a == count + 1);
  BOOST_TEST(next_b == count + 1);
  BOOST_TEST(wrong == 0);
  BOOST_TEST(x->cuts() > 5U);
  dialling.stop();
  dialled.stop();
}

BOOST_AUTO_TEST_CASE(a_peer_that_is_gone) {
  codec system;
  listener a;
  listener b;
  channel_host dialling{system.system(), by_tcp()};
  {
    channel_host dialled{system.system(), by_tcp()};
    dialling.connect(dialled.offer(b.handler()), "127.0.0.1", a.handler());
    get(a.settled);
    get(b.settled);
    dialled.stop();
    b.channel = nullptr;
  }
  BOOST_TEST(contains(get(a.closed), "has ended"));
  dialling.stop();
}

// A message that cannot be handled ends the link at both ends. If only one end were closed, the
// other would wait forever.
BOOST_AUTO_TEST_CASE(a_message_that_cannot_be_handled) {
  for (const bool local : {true, false}) {
    codec system;
    const auto how = local ? channel_host_options{} : by_tcp();
    channel_host dialling{system.system(), how};
    channel_host dialled{system.system(), how};
    listener a;
    std::promise<std::string> closed;
    std::atomic<int> handled = 0;
    const auto fail = [&](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [&](const proto::Frame&, const caf::message&) {
          ++handled;
          throw std::bad_alloc{};
        },
        [&](const std::string& reason) { closed.set_value(reason); },
      });
    };
    dialling.connect(dialled.offer(fail), how.address, a.handler());
    BOOST_TEST_REQUIRE(get(a.settled) == "");
    send(*a.channel, 1);
    BOOST_TEST(contains(get(closed), "bad_alloc"));
    BOOST_TEST(get(a.closed) != "");
    send(*a.channel, 2);
    BOOST_TEST(handled == 1);
    dialling.stop();
    dialled.stop();
  }
}

BOOST_AUTO_TEST_CASE(all_addresses_of_this_host) {
  std::uint16_t port = 0;
  const auto here = listen_on(any_address, port);
  BOOST_TEST_REQUIRE(port > 0);
  for (const std::string address : {"127.0.0.1", "::1"}) {
    std::string problem;
    bool refused = false;
    const auto socket = connect_to(address, port, 5s, problem, refused);
    if (!socket && address == "::1") {
      BOOST_TEST_MESSAGE("skipped: this system has no IPv6: " << problem);
      continue;
    }
    BOOST_TEST_REQUIRE(!!socket, problem);
    std::string peer;
    file_descriptor accepted;
    while (!accepted)
      accepted = accept_on(here.get(), peer);
    BOOST_TEST(peer == address);
    BOOST_TEST(has_equal_ends(socket.get()));
    BOOST_TEST(has_equal_ends(accepted.get()));
  }
}

BOOST_AUTO_TEST_CASE(nobody_listens) {
  codec system;
  channel_host host{system.system(), by_tcp()};
  proto::ChannelOffer gone;
  {
    channel_host other{system.system(), by_tcp()};
    gone = other.offer({});
  }
  listener a;
  host.connect(gone, "127.0.0.1", a.handler());
  BOOST_TEST(contains(get(a.settled), "refused"));
  listener b;
  gone.set_port(0);
  host.connect(gone, "127.0.0.1", b.handler());
  BOOST_TEST(get(b.settled) != "");
  host.stop();
}

// A token allows one connection. Connections with another token are closed.
BOOST_AUTO_TEST_CASE(strangers) {
  codec system;
  channel_host host{system.system(), {}};
  channel_host other{system.system(), {}};
  listener expected;
  const auto offer = host.offer(expected.handler());
  auto wrong = offer;
  wrong.set_token("guessed");
  listener a;
  other.connect(wrong, "", a.handler());
  BOOST_TEST(get(a.settled) == "", "it cannot know");
  BOOST_TEST(get(a.closed) != "");
  listener b;
  other.connect(offer, "", b.handler());
  BOOST_TEST(get(b.settled) == "");
  BOOST_TEST(get(expected.settled) == "");
  listener c;
  other.connect(offer, "", c.handler());
  BOOST_TEST(get(c.closed) != "");
  listener withdrawn;
  const auto another = host.offer(withdrawn.handler());
  host.withdraw(another);
  listener d;
  other.connect(another, "", d.handler());
  BOOST_TEST(get(d.closed) != "");
  send(*b.channel, 3);
  BOOST_TEST(get(expected.first) == 3U);
  host.stop();
  other.stop();
}

BOOST_AUTO_TEST_SUITE_END()
