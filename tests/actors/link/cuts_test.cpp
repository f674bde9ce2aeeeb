// Channels whose TCP connections go through a proxy. The proxy cuts, resets, half-closes or stalls
// them.

#include "actors/link/channel_host.hpp"
#include "messages/types.hpp"
#include "tests/actors/link/harming_proxy.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/logger_first.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
using harm = harming_proxy::harm;

BOOST_TEST_GLOBAL_FIXTURE(logger_first);

BOOST_AUTO_TEST_SUITE(cuts_of_connections)

namespace {

constexpr auto patience = 30s;
/// A peer is suspected after it has been silent for this time.
constexpr auto suspect_after = 60ms;
constexpr auto whole_record = std::numeric_limits<std::uint64_t>::max();

constexpr std::array all_harms{harm::cut, harm::reset, harm::half_close, harm::stall};

const char* name_of(harm x) {
  switch (x) {
  case harm::cut:
    return "cut";
  case harm::reset:
    return "reset";
  case harm::half_close:
    return "half-close";
  case harm::stall:
    return "stall";
  case harm::half_open:
    return "half open";
  case harm::refuse:
    return "refuse";
  case harm::refuse_for_good:
    return "refuse for good";
  }
  return "?";
}

std::byte pattern(std::uint64_t id, std::size_t i) {
  return static_cast<std::byte>((id * 31 + i) * 2654435761U >> 11);
}

/// The size of the payload of message `id`. Some payloads are empty, some are copied into a shared
/// record, and large ones have their own record.
std::size_t size_of(std::uint64_t id) {
  constexpr std::array<std::size_t, 5> sizes{40, 0, 90'001, 16'384, 700};
  return sizes[id % sizes.size()];
}

/// One end of a channel. It checks that each message arrives once, in order, and undamaged.
class end_point {
public:
  channel_host::on_channel handler() {
    return [this](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [this](const proto::Frame& frame, const caf::message& content) { take(frame, content); },
        [this](const std::string& reason) {
          const std::lock_guard guard{mutex_};
          closed_ = reason;
          changed_.notify_all();
        },
      });
      const std::lock_guard guard{mutex_};
      channel_ = x;
      changed_.notify_all();
    };
  }

  std::shared_ptr<stream_channel> channel() const {
    const std::lock_guard guard{mutex_};
    return channel_;
  }

  void send(std::uint64_t id) {
    proto::Frame frame;
    frame.set_id(id);
    auto data = payload::allocate(size_of(id));
    for (std::size_t i = 0; i < data.size(); ++i)
      data.mutable_data()[i] = pattern(id, i);
    channel_->send(frame, caf::make_message(proto::Segment{}, std::move(data)));
  }

  /// Waits until `done` is true. Meanwhile, keeps this end and `other` alive, as a link keeps its
  /// channel alive.
  template <class Condition>
  bool wait_for(const Condition& done, const end_point* other = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
      {
        std::unique_lock guard{mutex_};
        if (changed_.wait_for(guard, suspect_after / 8, done))
          return true;
        if (std::chrono::steady_clock::now() > deadline)
          return false;
      }
      keep_alive();
      if (other)
        other->keep_alive();
    }
  }

  void keep_alive() const {
    if (const auto x = channel())
      x->keep_alive(suspect_after);
  }

  std::uint64_t received() const {
    const std::lock_guard guard{mutex_};
    return received_;
  }

  /// Call this function, has() and is_closed() only in a condition of wait_for(), which locks the
  /// mutex.
  bool connected() const { return channel_ != nullptr; }
  bool has(std::uint64_t count) const { return received_ >= count; }
  bool is_closed() const { return !closed_.empty(); }

  std::string closed() const {
    const std::lock_guard guard{mutex_};
    return closed_;
  }
  bool damaged() const {
    const std::lock_guard guard{mutex_};
    return damaged_;
  }

private:
  void take(const proto::Frame& frame, const caf::message& content) {
    const auto& data = content.get_as<payload>(1);
    const std::lock_guard guard{mutex_};
    ++received_;
    damaged_ = damaged_ || frame.id() != received_ || data.size() != size_of(frame.id());
    for (std::size_t i = 0; i < data.size() && !damaged_; ++i)
      damaged_ = data.data()[i] != pattern(frame.id(), i);
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<stream_channel> channel_;
  std::uint64_t received_ = 0;
  bool damaged_ = false;
  std::string closed_;
};

channel_host_options by_tcp() {
  channel_host_options result;
  result.address = "127.0.0.1";
  result.local = false;
  result.grace = patience;
  return result;
}

/// Two hosts with a channel between them, through a proxy.
struct connected_hosts {
  explicit connected_hosts(caf::actor_system& sys, const channel_host_options& how = by_tcp())
    : dialled(sys, how), dialling(sys, how), offer(dialled.offer(b.handler())),
      proxy(static_cast<std::uint16_t>(offer.port())) {}

  void connect() {
    offer.set_port(proxy.port());
    dialling.connect(offer, "127.0.0.1", a.handler());
    BOOST_TEST_REQUIRE(a.wait_for([this] { return a.connected(); }));
  }

  void wait_for_other_end() {
    BOOST_TEST_REQUIRE(b.wait_for([this] { return b.connected(); }, &a));
  }

  /// Waits until both ends have received this many messages.
  bool all_arrive(std::uint64_t count) {
    return a.wait_for([&] { return a.has(count); }, &b)
      && b.wait_for([&] { return b.has(count); }, &a);
  }

  /// Connects. Then each end has sent and received one message.
  void connect_and_exchange() {
    connect();
    wait_for_other_end();
    a.send(1);
    b.send(1);
    BOOST_TEST_REQUIRE(all_arrive(1));
  }

  end_point a;
  end_point b;
  channel_host dialled;
  channel_host dialling;
  proto::ChannelOffer offer;
  harming_proxy proxy;
};

std::size_t threads() {
  return static_cast<std::size_t>(
    std::ranges::distance(std::filesystem::directory_iterator{"/proc/self/task"}));
}

/// Number of open descriptors of this process. Shared memory of the pool of buffers does not count.
std::size_t open_files() {
  std::size_t result = 0;
  for (const auto& x : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone; // set for the descriptor of the directory itself
    result += contains(std::filesystem::read_symlink(x.path(), gone).string(), "memfd:") ? 0 : 1;
  }
  return result;
}

/// Waits until this process has at most this number of threads. The system counts a thread for a
/// moment after its last statement.
bool threads_end(std::size_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (threads() > expected && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);
  return threads() <= expected;
}

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream{"/proc/self/statm"} >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

} // namespace

// Harms the connection at record 1, 2, ... until a conversation has no record with this number. All
// messages of both ends must arrive. Then one end closes the channel.
BOOST_AUTO_TEST_CASE(at_every_record) {
  constexpr std::uint64_t count = 7;
  codec system;
  const auto files = open_files();
  const auto tasks = threads();
  for (const auto how : all_harms)
    for (const std::uint64_t bytes : {std::uint64_t{9}, whole_record}) {
      bool harmed = true;
      std::uint64_t record = 0;
      for (some_cases chosen; harmed; ++record) {
        if (!chosen())
          continue;
        BOOST_TEST_INFO_SCOPE(name_of(how) << " after " << bytes << " bytes of record " << record);
        connected_hosts x{system.system()};
        x.proxy.plan(how, record, bytes);
        x.connect();
        for (std::uint64_t i = 1; i <= count; ++i)
          x.a.send(i);
        x.wait_for_other_end();
        for (std::uint64_t i = 1; i <= count; ++i)
          x.b.send(i);
        x.a.channel()->end();
        BOOST_TEST(x.b.wait_for([&] { return x.b.is_closed(); }, &x.a));
        BOOST_TEST_REQUIRE(x.b.received() == count);
        BOOST_TEST(!x.b.damaged());
        BOOST_TEST(!x.a.damaged());
        BOOST_TEST(contains(x.b.closed(), "ended"));
        harmed = !x.proxy.planned();
      }
      BOOST_TEST(record > count);
    }
  BOOST_TEST(open_files() == files);
  BOOST_TEST(threads_end(tasks));
}

// A connection breaks, and only the end that was dialed notices it. The dialing end must connect
// again. But it notices the break only after the grace (the time that a connection may stay
// broken). The dialed end waits for it that long.
BOOST_AUTO_TEST_CASE(an_end_that_has_not_noticed_is_awaited) {
  codec system;
  auto how = by_tcp();
  how.grace = 300ms;
  connected_hosts x{system.system(), how};
  x.connect_and_exchange();
  // Meanwhile, the ends exchange acknowledgments. So the dialed end knows that it can reach the
  // other end.
  std::this_thread::sleep_for(6 * how.grace);
  // On a busy machine, an end may already have seemed silent, which cut the connection. Such cuts
  // do not count.
  const auto cuts = x.a.channel()->cuts();
  x.proxy.plan(harm::half_open, 0, whole_record);
  x.a.send(2);
  // wait_for() would suspect the silent end, and its ping could get the harm.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while ((x.b.received() < 2 || x.proxy.planned()) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  BOOST_TEST_REQUIRE((x.b.received() == 2 && !x.proxy.planned()));
  x.b.send(2);
  std::this_thread::sleep_for(4 * how.grace);
  BOOST_TEST(x.b.closed() == "");
  BOOST_TEST(x.a.channel()->cuts() == cuts);
  BOOST_TEST(x.all_arrive(2));
  BOOST_TEST(!x.a.damaged());
  BOOST_TEST(x.a.channel()->cuts() > cuts);
}

// The network loses all large packets, also over new connections. So the connection is restored
// again and again, but a large message never arrives. Its sender must give up.
BOOST_AUTO_TEST_CASE(a_network_that_loses_large_packets) {
  codec system;
  for (const bool dialling_end_sends : {true, false}) {
    BOOST_TEST_INFO_SCOPE("the dialling end sends: " << dialling_end_sends);
    auto how = by_tcp();
    how.grace = 300ms;
    connected_hosts x{system.system(), how};
    x.connect_and_exchange();
    x.proxy.lose_records_above(stream_channel::large);
    auto& sender = dialling_end_sends ? x.a : x.b;
    auto& receiver = dialling_end_sends ? x.b : x.a;
    sender.send(2);
    BOOST_TEST_REQUIRE(sender.wait_for([&] { return sender.is_closed(); }, &receiver));
    BOOST_TEST(contains(sender.closed(), "MTU"));
    BOOST_TEST(sender.channel()->cuts() > 1U);
    BOOST_TEST(receiver.wait_for([&] { return receiver.is_closed(); }));
    BOOST_TEST(receiver.received() == 1U);
  }
}

// The port refuses connections for a moment, as when a firewall restarts. The peer counts as alive.
BOOST_AUTO_TEST_CASE(a_port_that_refuses_for_a_moment) {
  codec system;
  connected_hosts x{system.system()};
  x.connect_and_exchange();
  x.proxy.plan(harm::refuse, 0, whole_record);
  x.a.send(2);
  BOOST_TEST_REQUIRE(x.b.wait_for([&] { return !x.proxy.planned(); }, &x.a));
  x.b.send(2);
  x.a.send(3);
  x.b.send(3);
  BOOST_TEST(x.all_arrive(3));
  BOOST_TEST(!x.a.damaged());
  BOOST_TEST(!x.b.damaged());
  BOOST_TEST(x.a.channel()->cuts() > 0U);
}

// The port refuses connections for longer than `refused_for`. The peer counts as ended.
BOOST_AUTO_TEST_CASE(a_port_that_refuses_for_long) {
  codec system;
  auto how = by_tcp();
  how.refused_for = 75ms;
  connected_hosts x{system.system(), how};
  x.connect();
  x.wait_for_other_end();
  x.a.send(1);
  BOOST_TEST_REQUIRE(x.b.wait_for([&] { return x.b.has(1); }, &x.a));
  x.proxy.plan(harm::refuse_for_good, 0, whole_record);
  x.a.send(2);
  BOOST_TEST(x.a.wait_for([&] { return x.a.is_closed(); }, &x.b));
  BOOST_TEST(contains(x.a.closed(), "its process has ended"));
}

// Harms connections at random, TROUPE_CUTS times.
BOOST_AUTO_TEST_CASE(soak) {
  const auto* wanted = std::getenv("TROUPE_CUTS");
  const std::uint64_t harms = wanted != nullptr ? std::stoull(wanted) : 60;
  const auto* seed = std::getenv("TROUPE_SEED");
  std::mt19937_64 random{seed != nullptr ? std::stoull(seed) : 1};
  codec system;
  const auto files = open_files();
  const auto tasks = threads();
  std::size_t early = 0;
  {
    connected_hosts x{system.system()};
    x.connect();
    x.wait_for_other_end();
    std::uint64_t sent = 0;
    const auto converse = [&](int times) {
      for (int i = 0; i < times; ++i) {
        ++sent;
        x.a.send(sent);
        x.b.send(sent);
      }
      return x.all_arrive(sent);
    };
    for (std::uint64_t k = 0; k < harms; ++k) {
      const auto how = all_harms.at(random() % all_harms.size());
      const auto bytes = random() % 2 == 0 ? whole_record : 1 + random() % 2'000;
      BOOST_TEST_INFO_SCOPE(k << ": " << name_of(how));
      x.proxy.plan(how, random() % 12, bytes);
      while (x.proxy.planned())
        BOOST_TEST_REQUIRE(converse(1 + static_cast<int>(random() % 8)));
      if (k == harms / 10)
        early = resident_bytes();
    }
    BOOST_TEST(converse(5));
    BOOST_TEST(!x.a.damaged());
    BOOST_TEST(!x.b.damaged());
    BOOST_TEST(x.a.channel()->cuts() >= harms / 2);
    BOOST_TEST_MESSAGE(harms << " harms, " << sent << " messages each way, "
                             << x.a.channel()->cuts() << " cuts, " << threads() - tasks
                             << " threads, " << open_files() - files << " files");
  }
  if (!under_sanitizer)
    BOOST_TEST(resident_bytes() < early + (std::size_t{16} << 20));
  BOOST_TEST(open_files() == files);
  BOOST_TEST(threads_end(tasks));
}

BOOST_AUTO_TEST_SUITE_END()
