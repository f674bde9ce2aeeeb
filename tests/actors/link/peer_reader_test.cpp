// A channel_host can read the messages of a peer on the processor of this peer ("beside" it), with
// one thread per peer.

#include "actors/link/channel_host.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sched.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(reading_beside_peers)

namespace {

constexpr auto patience = 20s;

template <class T>
T get(std::promise<T>& x) {
  auto future = x.get_future();
  BOOST_REQUIRE((future.wait_for(patience) == std::future_status::ready));
  return future.get();
}

/// While it exists, binds the calling thread to one processor.
class bound_to {
public:
  explicit bound_to(int processor) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    ::sched_setaffinity(0, sizeof only, &only);
  }
  ~bound_to() { ::sched_setaffinity(0, sizeof before_, &before_); }

private:
  cpu_set_t before_;
};

std::vector<int> processors() {
  cpu_set_t set;
  std::vector<int> result;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set))
        result.push_back(i);
  return result;
}

void send(stream_channel& x, std::size_t bytes) {
  x.send({}, caf::make_message(proto::Segment{}, payload::allocate(bytes)));
}

channel_host_options beside(bool peers) {
  channel_host_options result;
  result.reads_beside_peers = peers;
  return result;
}

/// Two connected hosts in this process. With `beside_peers`, the host `dialled` reads beside its
/// peer if the peer is bound to one processor. A peer counts as bound if the main thread of its
/// process is bound. Here, this is the thread that runs the tests.
struct two_hosts {
  codec system;
  std::shared_ptr<stream_channel> here;
  std::shared_ptr<stream_channel> there;
  std::promise<std::thread::id> accepted;
  /// The thread of `dialled` that reads the messages of all peers without their own reader thread.
  std::thread::id usual_thread;
  std::promise<void> connected;
  std::promise<std::string> closed_here;
  std::promise<std::string> closed_there;
  std::atomic<int> received_here = 0;
  std::atomic<int> received_there = 0;
  std::atomic<bool> slow = false;
  std::mutex mutex;
  std::vector<int> processors;
  std::vector<std::thread::id> threads;
  // Declared last, so that the threads of the hosts end before the members that they use.
  channel_host dialling{system.system(), {}};
  channel_host dialled;

  explicit two_hosts(bool beside_peers) : dialled(system.system(), beside(beside_peers)) {}

  void connect() {
    const auto offer = dialled.offer([this](const auto& x, const std::string&) {
      there = x;
      x->listen({[this](const proto::Frame&, const caf::message&) {
                   if (slow.exchange(false))
                     std::this_thread::sleep_for(100ms);
                   const std::lock_guard guard{mutex};
                   processors.push_back(::sched_getcpu());
                   threads.push_back(std::this_thread::get_id());
                   ++received_there;
                 },
                 [this](const std::string& reason) { closed_there.set_value(reason); }});
      accepted.set_value(std::this_thread::get_id());
    });
    dialling.connect(offer, "", [this](const auto& x, const std::string&) {
      here = x;
      x->listen({[this](const proto::Frame&, const caf::message&) { ++received_here; },
                 [this](const std::string& reason) { closed_here.set_value(reason); }});
      connected.set_value();
    });
    get(connected);
    usual_thread = get(accepted);
  }

  static bool reaches(const std::atomic<int>& x, int expected) {
    const auto last = std::chrono::steady_clock::now() + patience;
    while (x < expected && std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(1ms);
    return x == expected;
  }

  void stop() {
    dialling.stop();
    dialled.stop();
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(on_the_processor_of_the_peer) {
  const auto all = processors();
  if (all.size() < 2) {
    BOOST_TEST_MESSAGE("skipped: there is only one processor");
    return;
  }
  for (const auto processor : {all[0], all[1]}) {
    two_hosts hosts{true};
    const bound_to one{processor};
    hosts.connect();
    for (int i = 1; i <= 20; ++i) {
      send(*hosts.here, i % 2 == 0 ? 10 : 100'000);
      BOOST_TEST_REQUIRE(hosts.reaches(hosts.received_there, i));
    }
    // The usual thread (see `usual_thread`) may have read messages that arrived before this peer's
    // own reader thread began.
    BOOST_TEST(hosts.processors.back() == processor);
    BOOST_TEST(std::ranges::count(hosts.threads, hosts.usual_thread) < 2);
    hosts.here->end();
    BOOST_TEST(get(hosts.closed_there).find("ended") != std::string::npos);
    hosts.stop();
  }
}

BOOST_AUTO_TEST_CASE(not_without_the_option) {
  const auto all = processors();
  two_hosts hosts{false};
  const bound_to one{all[0]};
  hosts.connect();
  send(*hosts.here, 10);
  BOOST_TEST(hosts.reaches(hosts.received_there, 1));
  BOOST_TEST((hosts.threads.back() == hosts.usual_thread));
  hosts.stop();
}

BOOST_AUTO_TEST_CASE(not_beside_a_peer_on_several_processors) {
  if (processors().size() < 2) {
    BOOST_TEST_MESSAGE("skipped: there is only one processor");
    return;
  }
  two_hosts hosts{true};
  hosts.connect();
  send(*hosts.here, 10);
  BOOST_TEST(hosts.reaches(hosts.received_there, 1));
  BOOST_TEST((hosts.threads.back() == hosts.usual_thread));
  hosts.stop();
}

// Both ends send more than a socket buffers, while the reader is busy.
BOOST_AUTO_TEST_CASE(full_sockets) {
  constexpr int count = 300;
  two_hosts hosts{true};
  const auto all = processors();
  const bound_to one{all[0]};
  hosts.connect();
  hosts.slow = true;
  for (int i = 0; i < count; ++i) {
    send(*hosts.here, 60'000);
    send(*hosts.there, 60'000);
  }
  BOOST_TEST(hosts.reaches(hosts.received_there, count));
  BOOST_TEST(hosts.reaches(hosts.received_here, count));
  if (all.size() > 1) // with one processor, no thread reads beside a peer
    BOOST_TEST((hosts.threads.back() != hosts.usual_thread));
  hosts.stop();
}

// Two of three peers have their own reader threads. The third peer uses TCP, and its messages are
// read by the thread that reads for all peers without their own.
BOOST_AUTO_TEST_CASE(several_peers_at_once) {
  constexpr int count = 500;
  codec system;
  auto how = beside(true);
  how.address = "127.0.0.1";
  channel_host_options by_tcp;
  by_tcp.address = how.address;
  by_tcp.local = false;
  std::atomic<int> received = 0;
  std::atomic<int> at_once = 0;
  std::atomic<bool> alone = true;
  std::array<std::promise<channel_host::channel_ptr>, 3> connected;
  channel_host dialled{system.system(), how};
  std::array<std::unique_ptr<channel_host>, 3> dialling;
  const bound_to one{processors()[0]};
  for (std::size_t i = 0; i < dialling.size(); ++i) {
    dialling[i] =
      std::make_unique<channel_host>(system.system(), i == 2 ? by_tcp : channel_host_options{});
    const auto offer = dialled.offer([&](const auto& x, const std::string&) {
      x->listen({[&](const proto::Frame&, const caf::message&) {
                   if (at_once++ != 0)
                     alone = false;
                   ++received;
                   --at_once;
                 },
                 [](const std::string&) {}});
    });
    dialling[i]->connect(offer, how.address, [&connected, i](const auto& x, const std::string&) {
      connected[i].set_value(x);
    });
  }
  std::vector<std::thread> senders;
  for (auto& x : connected)
    senders.emplace_back([channel = get(x)] {
      for (int i = 0; i < count; ++i)
        send(*channel, i % 10 == 0 ? 100'000 : 10);
    });
  for (auto& x : senders)
    x.join();
  BOOST_TEST(two_hosts::reaches(received, 3 * count));
  BOOST_TEST(alone, "two threads have handled messages at the same time");
  for (auto& x : dialling)
    x->stop();
  dialled.stop();
}

// The host stops while a reader handles a message. stop() waits for the reader.
BOOST_AUTO_TEST_CASE(an_end_while_a_message_is_handled) {
  two_hosts hosts{true};
  const bound_to one{processors()[0]};
  hosts.connect();
  hosts.slow = true;
  send(*hosts.here, 10);
  while (hosts.slow)
    std::this_thread::sleep_for(1ms);
  hosts.dialled.stop();
  BOOST_TEST(hosts.received_there == 1);
  hosts.dialling.stop();
}

// When a peer has ended, its channel and its reader thread end, too.
BOOST_AUTO_TEST_CASE(one_peer_after_the_other) {
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator{"/proc/self/task"}, fs::directory_iterator{});
  };
  codec system;
  channel_host dialled{system.system(), beside(true)};
  const bound_to one{processors()[0]};
  const auto before = threads();
  std::vector<std::weak_ptr<stream_channel>> channels;
  for (int i = 0; i < 50; ++i) {
    channel_host dialling{system.system(), {}};
    std::promise<void> received;
    std::promise<void> closed;
    std::promise<channel_host::channel_ptr> connected;
    const auto offer = dialled.offer([&](const auto& x, const std::string&) {
      channels.push_back(x);
      x->listen({[&](const proto::Frame&, const caf::message&) { received.set_value(); },
                 [&](const std::string&) { closed.set_value(); }});
    });
    dialling.connect(offer, "", [&](const auto& x, const std::string&) { connected.set_value(x); });
    send(*get(connected), 10);
    get(received);
    dialling.stop();
    get(closed);
  }
  const auto last = std::chrono::steady_clock::now() + patience;
  const auto remains = [&] {
    return threads() > before
      || !std::ranges::all_of(channels, [](auto& x) { return x.expired(); });
  };
  while (remains() && std::chrono::steady_clock::now() < last)
    std::this_thread::sleep_for(1ms);
  BOOST_TEST(threads() <= before);
  BOOST_TEST(std::ranges::all_of(channels, [](auto& x) { return x.expired(); }));
  dialled.stop();
}

BOOST_AUTO_TEST_SUITE_END()
