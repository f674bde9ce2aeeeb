#include "actors/link/sockets.hpp"
#include "tests/actors/link/stream_ends.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <fstream>
#include <thread>

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using boost::test_tools::per_element;
using namespace std::chrono_literals;

BOOST_FIXTURE_TEST_SUITE(stream_channel_records, with_shared_memory)

BOOST_AUTO_TEST_CASE(payloads_of_all_sizes) {
  for (const bool lends : {false, true}) {
    connection x{lends};
    const std::vector<std::size_t> sizes{0,      1,      16'383,  16'384,    65'535, 65'536,
                                         65'537, 99'991, 1 << 20, 3'000'003, 1};
    for (std::size_t i = 0; i < sizes.size(); ++i)
      x.a->send(i + 1, patterned(sizes[i], i));
    x.run();
    BOOST_TEST_REQUIRE(x.b->messages.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      BOOST_TEST(x.b->messages[i].frame.id() == i + 1);
      BOOST_TEST(x.b->messages[i].content.get_as<proto::Segment>(0).step() == i + 1);
      BOOST_TEST(equal(x.b->messages[i].data(), patterned(sizes[i], i)));
    }
    BOOST_TEST(x.b->closed == "");
  }
}

BOOST_AUTO_TEST_CASE(both_ways_at_once_over_a_narrow_socket) {
  connection x{false};
  const int small = 4096;
  for (const int s : x.sockets)
    ::setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    x.a->send(i, patterned(100'000 + i, i));
    x.b->send(i, patterned(200'000 + i, i));
  }
  for (int i = 0; i < 20; ++i)
    x.run();
  BOOST_TEST_REQUIRE(x.a->messages.size() == 20U);
  BOOST_TEST_REQUIRE(x.b->messages.size() == 20U);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    BOOST_TEST(equal(x.b->messages[i - 1].data(), patterned(100'000 + i, i)));
    BOOST_TEST(equal(x.a->messages[i - 1].data(), patterned(200'000 + i, i)));
  }
}

BOOST_AUTO_TEST_CASE(messages_of_several_threads) {
  connection x{true};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 50; ++i)
        x.a->send(t * 100 + i, patterned(i % 3 == 0 ? 70'000 : 10, i));
    });
  for (int i = 0; i < 5; ++i)
    x.run();
  for (auto& t : threads)
    t.join();
  x.run();
  BOOST_TEST_REQUIRE(x.b->messages.size() == 200U);
  std::array<std::uint64_t, 4> next{};
  for (auto& m : x.b->messages)
    BOOST_TEST(m.frame.id() % 100 == next.at(m.frame.id() / 100)++);
}

// -- messages that are sent together (sent_together) --------------------------------------------

namespace {

/// Number of bytes that have arrived at this socket and are not read yet.
int bytes_at(int socket) {
  int result = 0;
  ::ioctl(socket, FIONREAD, &result);
  return result;
}

std::vector<std::uint64_t> numbers(const end_point& x) {
  std::vector<std::uint64_t> result;
  for (auto& m : x.messages)
    result.push_back(m.frame.id());
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(messages_wait_for_the_end_of_the_outermost_group) {
  connection x{true};
  {
    const sent_together group;
    x.a->send(1, patterned(100));
    {
      const sent_together inner{sent_together::kind::small};
      x.a->send(2, patterned(1 << 20));
    }
    x.b->send(7, patterned(10));
    BOOST_TEST(bytes_at(x.sockets[0]) == 0);
    BOOST_TEST(bytes_at(x.sockets[1]) == 0);
    BOOST_TEST(!x.a->channel->idle(false));
  }
  BOOST_TEST(bytes_at(x.sockets[0]) > 0);
  BOOST_TEST(x.a->channel->idle(false));
  x.a->send(3, patterned(5));
  x.run();
  BOOST_TEST(numbers(*x.b) == (std::vector<std::uint64_t>{1, 2, 3}), per_element());
  BOOST_TEST(numbers(*x.a) == (std::vector<std::uint64_t>{7}), per_element());
}

BOOST_AUTO_TEST_CASE(a_large_payload_may_end_the_waiting) {
  connection x{false};
  const sent_together group{sent_together::kind::small};
  x.a->send(1, patterned(100));
  BOOST_TEST(bytes_at(x.sockets[1]) == 0);
  x.a->send(2, patterned(20'000));
  const int sent = bytes_at(x.sockets[1]);
  BOOST_TEST(sent > 20'100);
  x.a->send(3, patterned(100));
  BOOST_TEST(bytes_at(x.sockets[1]) == sent);
  x.run(); // the rest may be sent when the socket is writable
  BOOST_TEST(numbers(*x.b) == (std::vector<std::uint64_t>{1, 2, 3}), per_element());
}

BOOST_AUTO_TEST_CASE(an_inner_group_may_keep_large_payloads) {
  connection x{false};
  const sent_together reading{sent_together::kind::small};
  int sent = 0;
  {
    const sent_together group;
    x.a->send(1, patterned(20'000));
    {
      const sent_together same;
      x.a->send(2, patterned(100));
    }
    BOOST_TEST(bytes_at(x.sockets[1]) == 0);
  }
  sent = bytes_at(x.sockets[1]);
  BOOST_TEST(sent > 20'100);
  x.a->send(3, patterned(100));
  BOOST_TEST(bytes_at(x.sockets[1]) == sent);
  x.a->send(4, patterned(20'000));
  BOOST_TEST(bytes_at(x.sockets[1]) > sent + 20'100);
  x.run();
  BOOST_TEST(numbers(*x.b) == (std::vector<std::uint64_t>{1, 2, 3, 4}), per_element());
}

BOOST_AUTO_TEST_CASE(other_threads_do_not_wait) {
  connection x{true};
  const sent_together group;
  x.a->send(1, patterned(100));
  std::thread{[&] { x.a->send(2, patterned(100)); }}.join();
  BOOST_TEST(bytes_at(x.sockets[1]) > 200);
  x.run();
  BOOST_TEST(numbers(*x.b) == (std::vector<std::uint64_t>{1, 2}), per_element());
}

// Messages that arrive together are handled as a group. So the answers to them are sent together.
BOOST_AUTO_TEST_CASE(answers_leave_together) {
  connection x{true};
  std::vector<int> before_each;
  x.b->channel->listen({
    [&](const proto::Frame& frame, const caf::message&) {
      before_each.push_back(bytes_at(x.sockets[0]));
      x.b->send(frame.id() + 10, patterned(100));
    },
    [](const std::string&) {},
  });
  {
    const sent_together group;
    for (std::uint64_t i = 1; i <= 3; ++i)
      x.a->send(i, patterned(100));
  }
  x.run();
  BOOST_TEST(before_each == (std::vector<int>{0, 0, 0}), per_element());
  BOOST_TEST(numbers(*x.a) == (std::vector<std::uint64_t>{11, 12, 13}), per_element());
}

// Records that follow a greeting wait until listen() is called, however many they are.
BOOST_AUTO_TEST_CASE(greetings) {
  codec system;
  std::array<int, 2> sockets{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  end_point a{system.system(), sockets[0], false, 1 << 20};
  end_point b{system.system(), sockets[1], false, 1 << 20};
  a.listen();
  b.run();
  BOOST_TEST(b.channel->greeting().token() == "");
  a.channel->greet("who", 0);
  a.send(1, patterned(10'000));
  a.send(2, patterned(100'000));
  a.send(3, patterned(10));
  for (int i = 0; i < 10; ++i) {
    a.run();
    b.run();
  }
  BOOST_TEST(b.channel->greeting().token() == "who");
  BOOST_TEST(b.messages.empty());
  b.listen();
  for (int i = 0; i < 10; ++i) {
    a.run();
    b.run();
  }
  BOOST_TEST(b.messages.size() == 3U);
}

// -- peers that take no data ----------------------------------------------------------------------

namespace {

std::size_t resident_bytes() {
  std::ifstream in{"/proc/self/statm"};
  std::size_t all = 0;
  std::size_t resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

} // namespace

// A stopped process does not read its socket, and does not return memory that was lent to it.
BOOST_AUTO_TEST_CASE(a_stopped_peer) {
  for (const bool lends : {false, true})
    BOOST_TEST_CONTEXT((lends ? "lends" : "writes")) {
      connection x{lends};
      x.a->channel->limit({.window = 4 << 20});
      const auto before = resident_bytes();
      for (std::uint64_t i = 1; i <= 10'000; ++i) {
        x.a->send(i, patterned(100'000));
        x.a->run();
      }
      BOOST_TEST(contains(x.a->closed, "more than 4 MiB"));
      BOOST_TEST(resident_bytes() < before + (std::size_t{64} << 20));
      BOOST_TEST(x.a->channel->finished() == !lends, "the peer may still read what it was lent");
      x.run();
      BOOST_TEST(x.b->messages.size() < 100U);
      for (auto& m : x.b->messages)
        BOOST_TEST(equal(m.data(), patterned(100'000)), "as it was sent");
      x.b->messages.clear();
      x.run();
      BOOST_TEST(x.a->channel->finished());
    }
}

// When a peer has ended, the memory that was lent to it can be used again. This also holds if the
// channel ended before, because too much data waited for the peer.
BOOST_AUTO_TEST_CASE(a_stopped_peer_that_is_killed) {
  connection x{true};
  x.a->channel->limit({.window = 1 << 20});
  const auto lent = patterned(100'000);
  for (std::uint64_t i = 1; i <= 20; ++i)
    x.a->send(i, lent);
  x.a->run();
  BOOST_TEST(contains(x.a->closed, "more than 1 MiB"));
  BOOST_TEST(!lent.unique());
  BOOST_TEST(!x.a->channel->finished());
  x.b = nullptr;
  x.a->run();
  BOOST_TEST(lent.unique());
  BOOST_TEST(x.a->channel->finished());
}

BOOST_AUTO_TEST_CASE(one_message_may_exceed_the_window) {
  connection x{false};
  x.a->channel->limit({.window = 1 << 20});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    x.a->send(i, patterned(3 << 20));
    for (int k = 0; k < 10; ++k)
      x.run();
  }
  BOOST_TEST(x.b->messages.size() == 3U);
  BOOST_TEST(x.a->channel->waiting() == 0U);
  BOOST_TEST(x.a->closed == "");
}

// The channel is within this host if both ends have the same address. Two addresses of one machine
// count as two hosts.
BOOST_AUTO_TEST_CASE(connections_within_this_host) {
  for (const auto& [address, within] : {std::pair{"127.0.0.1", true}, {"127.0.0.2", false}}) {
    std::uint16_t port = 0;
    const auto listener = listen_on(address, port);
    std::string problem;
    bool refused = false;
    const auto connection = connect_to(address, port, std::chrono::seconds{5}, problem, refused);
    BOOST_TEST_REQUIRE(problem == "");
    BOOST_TEST(has_equal_ends(connection.get()) == within);
  }
  BOOST_TEST(!has_equal_ends(-1));
}

// Only large payloads count, while they move: when they are written, when the system has sent them,
// and when they are read.
BOOST_AUTO_TEST_CASE(payloads_that_move_are_counted) {
  connection x{false};
  const auto sent = std::make_shared<payload_meter>();
  const auto received = std::make_shared<payload_meter>();
  x.a->channel->measure(sent);
  x.b->channel->measure(received);
  constexpr std::size_t size = std::size_t{2} << 20;

  x.a->send(1, patterned(100));
  x.a->channel->keep_alive(0ns);
  x.run();
  BOOST_TEST(sent->bytes() == 0U);
  BOOST_TEST(received->bytes() == 0U);
  BOOST_TEST((sent->moved() == payload_meter::time_point{}));

  // The socket is too small for the payload.
  x.a->send(2, patterned(size));
  const auto written = sent->bytes();
  BOOST_TEST(written > 0U);
  BOOST_TEST(written < size);
  const auto before = sent->moved();
  // The system still holds what was written.
  x.a->channel->keep_alive(1h);
  BOOST_TEST((sent->moved() == before));
  while (x.b->channel->on_readable())
    ;
  BOOST_TEST(received->bytes() > 0U);
  BOOST_TEST(received->bytes() < size);
  // Nothing was written, but the bytes have left the system.
  x.a->channel->keep_alive(1h);
  BOOST_TEST((sent->moved() > before));
  BOOST_TEST(sent->bytes() == written);
  const auto moved = sent->moved();
  x.a->channel->keep_alive(1h);
  BOOST_TEST((sent->moved() == moved));

  x.run();
  BOOST_TEST(x.b->messages.size() == 2U);
  BOOST_TEST(received->bytes() == size);
  BOOST_TEST(sent->bytes() >= size);
}

// Values that were rounded to bfloat16 take half the bytes, unless the peer reads them in shared
// memory. The peer gets the same values.
BOOST_AUTO_TEST_CASE(rounded_values_are_packed) {
  constexpr std::size_t count = 50'000;
  for (const bool lends : {false, true}) {
    connection x{lends};
    const auto sent = std::make_shared<payload_meter>();
    x.a->channel->measure(sent);
    auto data = payload::floats(count);
    for (std::size_t i = 0; i < count; ++i)
      data.as_mutable_floats()[i] = static_cast<float>(i % 256) * 0x1p-20F;
    data.as_mutable_floats()[count / 2] = 0.1F;
    data.mark_rounded();
    x.a->send(1, data);
    x.a->send(2, data.slice_floats(7, count - 7));
    x.a->send(3, payload{});
    x.run();
    BOOST_TEST_REQUIRE(x.b->messages.size() == 3U);
    BOOST_TEST(equal(x.b->messages[0].data(), data));
    BOOST_TEST(equal(x.b->messages[1].data(), data.slice_floats(7, count - 7)));
    BOOST_TEST(x.b->messages[2].data().empty());
    BOOST_TEST(x.b->closed == "");
    if (lends)
      BOOST_TEST(sent->bytes() == 0U);
    else
      BOOST_TEST(sent->bytes() < 2 * count * sizeof(float) * 51 / 100);
  }
}

BOOST_AUTO_TEST_SUITE_END()
