#include "actors/link/stream_channel.hpp"

#include "actors/link/sockets.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using boost::test_tools::per_element;

namespace {

struct arrived {
  proto::Frame frame;
  caf::message content;

  const payload& data() const { return content.get_as<payload>(content.size() - 1); }
};

payload patterned(std::size_t size, unsigned seed = 1) {
  auto result = payload::allocate(size);
  for (std::size_t i = 0; i < size; ++i)
    result.mutable_data()[i] = static_cast<std::byte>((i + seed) * 2654435761U >> 13);
  return result;
}

bool equal(const payload& a, const payload& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

/// An end of a connection. Its events are handled when the test asks for it.
struct end_point {
  std::shared_ptr<stream_channel> channel;
  std::vector<arrived> messages;
  std::string closed;
  int ticks_wanted = 0;

  end_point(caf::actor_system& sys, int socket, bool lends, std::uint64_t max_bytes,
            bool resumes = false) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    stream_options how;
    how.lends = lends;
    how.resumes = resumes;
    how.max_bytes = max_bytes;
    how.wake = [this] { ++ticks_wanted; };
    channel = std::make_shared<stream_channel>(sys, file_descriptor{socket}, how);
  }

  void listen() {
    channel->listen({
      [this](const proto::Frame& frame, caf::message content) {
        messages.push_back({frame, std::move(content)});
      },
      [this](const std::string& reason) { closed = reason; },
    });
  }

  /// Does the work of a thread that waits for the socket.
  void run() {
    if (channel->socket() < 0)
      return;
    channel->on_writable();
    while (channel->on_readable())
      ;
    if (std::exchange(ticks_wanted, 0) > 0)
      channel->on_tick();
  }

  void send(std::uint64_t id, payload data) {
    proto::Frame frame;
    frame.set_id(id);
    proto::Segment header;
    header.set_step(id);
    channel->send(frame, caf::make_message(std::move(header), std::move(data)));
  }
};

struct connection {
  codec system;
  std::array<int, 2> sockets{};
  std::unique_ptr<end_point> a;
  std::unique_ptr<end_point> b;

  explicit connection(bool lends, std::uint64_t max_bytes = std::uint64_t{1} << 36) {
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
    a = std::make_unique<end_point>(system.system(), sockets[0], lends, max_bytes);
    b = std::make_unique<end_point>(system.system(), sockets[1], lends, max_bytes);
    a->listen();
    b->listen();
  }

  void run() {
    for (int i = 0; i < 200; ++i) {
      a->run();
      b->run();
    }
  }
};

struct with_shared_memory {
  with_shared_memory() { buffer_pool::process().share_from(std::size_t{64} << 10); }
};

/// Number of open descriptors of this process, according to the kernel.
std::size_t open_files() {
  std::size_t result = 0;
  for (int i = 0; i < 1024; ++i)
    result += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return result;
}

std::vector<char> record(std::uint32_t kind, std::uint64_t body, const std::string& head) {
  std::vector<char> result(16 + head.size());
  const auto size = static_cast<std::uint32_t>(head.size());
  std::memcpy(result.data(), &kind, 4);
  std::memcpy(result.data() + 4, &size, 4);
  std::memcpy(result.data() + 8, &body, 8);
  std::ranges::copy(head, result.begin() + 16);
  return result;
}

} // namespace

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

// -- messages that leave together ---------------------------------------------------------------

namespace {

/// Bytes that have arrived at an end and were not read yet.
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
  x.run(); // A thread that watches the socket may write it, too.
  BOOST_TEST(numbers(*x.b) == (std::vector<std::uint64_t>{1, 2, 3}), per_element());
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

// What a peer sends at once is answered at once.
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

// Records after a greeting wait until listen() is called, however many there are.
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

// -- lending ------------------------------------------------------------------------------------

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

// A stopped process: its socket and the memory that it was lent stay as they are.
BOOST_AUTO_TEST_CASE(a_stopped_peer) {
  for (const bool lends : {false, true})
    BOOST_TEST_CONTEXT((lends ? "lends" : "writes")) {
      connection x{lends};
      x.a->channel->limit(4 << 20);
      const auto before = resident_bytes();
      for (std::uint64_t i = 1; i <= 10'000; ++i) {
        x.a->send(i, patterned(100'000));
        x.a->run();
      }
      BOOST_TEST(contains(x.a->closed, "more than 4 MiB"));
      BOOST_TEST(resident_bytes() < before + (std::size_t{64} << 20));
      BOOST_TEST(x.a->channel->finished());
      x.run();
      BOOST_TEST(x.b->messages.size() < 100U);
      for (auto& m : x.b->messages)
        BOOST_TEST(equal(m.data(), patterned(100'000)), "as it was sent");
    }
}

BOOST_AUTO_TEST_CASE(one_message_may_exceed_the_window) {
  connection x{false};
  x.a->channel->limit(1 << 20);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    x.a->send(i, patterned(3 << 20));
    for (int k = 0; k < 10; ++k)
      x.run();
  }
  BOOST_TEST(x.b->messages.size() == 3U);
  BOOST_TEST(x.a->channel->waiting() == 0U);
  BOOST_TEST(x.a->closed == "");
}

// -- sockets that break -------------------------------------------------------------------------

namespace {

/// A connection between hosts, which the test breaks and restores.
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
    const int small = 4096; // Records are written in many pieces.
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

  /// Connects like the hosts of channels: `a` connects and sends a greeting; `b` answers.
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

// Cuts the connection after each possible number of reads, until a run is not cut. Each message
// arrives once, in order, and undamaged.
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

// The peer reads everything, and acknowledges nothing.
BOOST_AUTO_TEST_CASE(a_peer_that_never_acknowledges) {
  codec system;
  const auto sockets = breaking::new_pair();
  end_point a{system.system(), sockets[0], false, 1 << 30, true};
  a.listen();
  a.channel->limit(1 << 20);
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

// Messages that were left out while the connection was broken must not be missing afterwards.
BOOST_AUTO_TEST_CASE(too_much_for_a_broken_connection) {
  breaking x;
  x.a->channel->limit(1 << 20);
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
      // Often, the next connection also breaks before anything was sent.
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
  // The data that was sent has not been read yet.
  BOOST_TEST(x.b->channel->keep_alive(std::chrono::nanoseconds{1}));
  x.run();
  BOOST_TEST(x.a->closed == "");
  breaking y;
  BOOST_TEST(y.a->channel->keep_alive(std::chrono::nanoseconds{1}), "it may come back");
  y.run_once();
  BOOST_TEST(y.a->channel->cut());
}

// -- hostile peers ------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(records_that_cannot_be_decoded) {
  std::vector<std::vector<char>> bad{
    record(0, 0, ""),
    record(99, 0, ""),
    record(proto::MESSAGE, 0, ""),
    record(proto::MESSAGE, 0, std::string(4, '\xff')),
    record(proto::MESSAGE, 0, std::string(200, '\0')),
    record(proto::MESSAGE, ~std::uint64_t{0}, ""),
    record(proto::RETURN, 7, ""),
    record(proto::RETURN, 0, "\xff\xff\xff"),
    record(proto::GREETING, 0, "\x0a\x01x\x10\x05"),
  };
  auto large = record(proto::MESSAGE, 0, "");
  large[7] = '\x7f';
  bad.push_back(large);
  for (const auto& bytes : bad) {
    connection x{true};
    BOOST_REQUIRE(::write(x.sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    x.b->run();
    BOOST_TEST(contains(x.b->closed, "it sent"));
    BOOST_TEST(x.b->messages.empty());
    x.a->send(1, patterned(10));
    x.run();
    BOOST_TEST(x.b->messages.empty(), "nothing is believed afterwards");
  }
}

// Nothing is done or allocated for a peer before it has identified itself.
BOOST_AUTO_TEST_CASE(strangers_that_say_something_else_first) {
  codec system;
  const auto content = system.encode(caf::make_message(proto::Segment{}));
  std::string head(4, '\0');
  head.append(content.begin(), content.end());
  for (const auto& bytes :
       {record(proto::MESSAGE, 0, head), record(proto::MESSAGE, std::uint64_t{1} << 36, head),
        record(proto::END, 0, ""), record(proto::RETURN, 0, ""), record(proto::PING, 0, ""),
        record(proto::GREETING, 0, std::string(300, 'x'))}) {
    std::array<int, 2> sockets{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
    end_point stranger{system.system(), sockets[1], true, std::uint64_t{1} << 36};
    BOOST_REQUIRE(::write(sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    stranger.run();
    BOOST_TEST(stranger.channel->over());
    BOOST_TEST(stranger.channel->greeting().token() == "");
    ::close(sockets[0]);
  }
}

// Every byte of a stream of valid records is changed once. The receiver handles the result or
// closes.
BOOST_AUTO_TEST_CASE(changed_bytes) {
  std::vector<char> good;
  {
    connection x{false};
    x.a->send(1, patterned(20));
    x.a->send(2, patterned(20'000));
    good.resize(30'000);
    const auto n = ::read(x.sockets[1], good.data(), good.size());
    BOOST_REQUIRE(n > 20'000);
    good.resize(static_cast<std::size_t>(n));
  }
  std::mt19937 random{3};
  for (std::size_t i = 0; i < 400; ++i) {
    auto bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ static_cast<char>(1 + random() % 255));
    connection x{true, 1 << 20};
    BOOST_REQUIRE(::write(x.sockets[0], bytes.data(), bytes.size())
                  == static_cast<ssize_t>(bytes.size()));
    x.b->run();
    BOOST_TEST(x.b->messages.size() <= 2U);
  }
}

namespace {

/// Sends a message that describes the position of its payload, with a descriptor or without one
/// (-1).
void send_loan(int socket, codec& system, const proto::Loan& loan, int descriptor) {
  proto::Frame frame;
  *frame.mutable_loan() = loan;
  const auto text = frame.SerializeAsString();
  std::string head(4, '\0');
  const auto size = static_cast<std::uint32_t>(text.size());
  std::memcpy(head.data(), &size, 4);
  head += text;
  const auto content = system.encode(caf::make_message(proto::Segment{}, payload{}));
  head.append(content.begin(), content.end());
  auto bytes = record(proto::MESSAGE, 0, head);
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* x = CMSG_FIRSTHDR(&message);
    x->cmsg_level = SOL_SOCKET;
    x->cmsg_type = SCM_RIGHTS;
    x->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(x), &descriptor, sizeof(int));
  }
  BOOST_REQUIRE(::sendmsg(socket, &message, 0) == static_cast<ssize_t>(bytes.size()));
}

file_descriptor memory_file(std::size_t bytes, int seals) {
  file_descriptor result{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  BOOST_REQUIRE(::ftruncate(result.get(), static_cast<off_t>(bytes)) == 0);
  BOOST_REQUIRE(::fcntl(result.get(), F_ADD_SEALS, seals) == 0);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(loans_that_cannot_be) {
  const auto sealed = memory_file(8192, F_SEAL_SHRINK);
  const auto shrinks = memory_file(8192, F_SEAL_GROW);
  const file_descriptor pipe_like{::dup(0)};
  struct sample {
    std::uint64_t memory_bytes;
    bool first_time;
    std::uint64_t offset;
    std::uint64_t bytes;
    int descriptor;
    bool good;
  };
  const std::vector<sample> samples{
    {8192, true, 0, 8192, sealed.get(), true},
    {8192, true, 100, 8092, sealed.get(), true},
    {8192, true, 100, 8093, sealed.get(), false},
    {8192, true, ~std::uint64_t{0} - 3, 8, sealed.get(), false},
    {8192, true, 0, 0, sealed.get(), false},
    {8193, true, 0, 10, sealed.get(), false},
    {0, true, 0, 10, sealed.get(), false},
    {8192, true, 0, 10, shrinks.get(), false},
    {8192, true, 0, 10, pipe_like.get(), false},
    {8192, true, 0, 10, -1, false},
    {8192, false, 0, 10, -1, false},
  };
  const auto before = open_files();
  for (const auto& sample : samples) {
    connection x{true};
    proto::Loan loan;
    loan.set_number(1);
    loan.set_memory(5);
    loan.set_memory_bytes(sample.memory_bytes);
    loan.set_first_time(sample.first_time);
    loan.set_offset(sample.offset);
    loan.set_bytes(sample.bytes);
    send_loan(x.sockets[0], x.system, loan, sample.descriptor);
    x.b->run();
    BOOST_TEST(x.b->messages.size() == (sample.good ? 1U : 0U));
    BOOST_TEST((x.b->closed == "") == sample.good);
  }
  BOOST_TEST(open_files() == before);
}

// More memory than the peer may share in total, and descriptors that were not announced.
BOOST_AUTO_TEST_CASE(too_much) {
  const auto sealed = memory_file(8192, F_SEAL_SHRINK);
  connection x{true, 20'000};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    proto::Loan loan;
    loan.set_number(i);
    loan.set_memory(i);
    loan.set_memory_bytes(8192);
    loan.set_first_time(true);
    loan.set_bytes(10);
    send_loan(x.sockets[0], x.system, loan, sealed.get());
    x.b->run();
  }
  BOOST_TEST(x.b->messages.size() == 2U);
  BOOST_TEST(contains(x.b->closed, "memory that cannot be used"));
}

// Addresses that differ count as two hosts, because that is how hosts differ.
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

BOOST_AUTO_TEST_SUITE_END()
