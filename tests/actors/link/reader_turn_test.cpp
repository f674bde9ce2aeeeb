#include "actors/link/reader_turn.hpp"

#include "actors/link/channel_host.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 20s;

/// A thread that owns a reader_turn (the right to read sockets). It reads until the end of the
/// test, except while another thread has taken the turn.
class owner {
public:
  explicit owner(reader_turn& turn) : turn_(turn), thread_([this] { read(); }) {}
  ~owner() {
    turn_.close([] {});
    stops_ = true;
    thread_.join();
  }
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;

  void interrupt() { interrupted_ = true; }
  std::uint64_t rounds() const { return rounds_; }

  /// Number of threads that read at this moment.
  std::atomic<int> readers = 0;
  std::atomic<bool> met = false;

private:
  void read() {
    while (!stops_) {
      turn_.wait();
      met = met || ++readers > 1;
      ++rounds_;
      for (int i = 0; i < 1000 && !interrupted_ && !stops_; ++i)
        std::this_thread::sleep_for(10us);
      interrupted_ = false;
      --readers;
    }
  }

  reader_turn& turn_;
  std::atomic<bool> stops_ = false;
  std::atomic<bool> interrupted_ = false;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::thread thread_;
};

/// Two connected hosts. `mine` counts the messages that arrive, and notes which thread handled
/// them. `other` answers each message.
struct conversation {
  codec system;
  channel_host mine{system.system(), {}};
  channel_host other{system.system(), {}};
  std::promise<channel_host::channel_ptr> connected;
  channel_host::channel_ptr channel;
  std::atomic<std::uint64_t> answers = 0;
  std::atomic<std::uint64_t> answers_here = 0;
  std::thread::id here = std::this_thread::get_id();

  conversation() {
    const auto answer = [](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [raw = x.get()](const proto::Frame& frame, const caf::message&) { say(*raw, frame.id()); },
        [](const std::string&) {},
      });
    };
    const auto count = [this](const channel_host::channel_ptr& x, const std::string&) {
      x->listen({
        [this](const proto::Frame&, const caf::message&) {
          answers_here += std::this_thread::get_id() == here ? 1 : 0;
          ++answers;
        },
        [](const std::string&) {},
      });
      connected.set_value(x);
    };
    mine.connect(other.offer(answer), {}, count);
    channel = connected.get_future().get();
  }

  static void say(stream_channel& x, std::uint64_t id) {
    proto::Frame frame;
    frame.set_id(id);
    x.send(frame, caf::make_message(proto::Segment{}, payload{}));
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(reader_turns)

BOOST_AUTO_TEST_CASE(one_thread_reads_at_a_time) {
  reader_turn turn;
  owner own{turn};
  std::atomic<int> taken = 0;
  const auto others = [&] {
    for (int i = 0; i < 300; ++i) {
      if (!turn.take([&] { own.interrupt(); }))
        continue;
      own.met = own.met || ++own.readers > 1;
      std::this_thread::sleep_for(std::chrono::microseconds{i % 7 * 50});
      --own.readers;
      ++taken;
      turn.give_back(i % 3 == 0);
      std::this_thread::sleep_for(std::chrono::microseconds{i % 11 * 200});
    }
  };
  std::thread second{others};
  others();
  second.join();
  BOOST_TEST(!own.met);
  BOOST_TEST(taken > 20);
}

BOOST_AUTO_TEST_CASE(the_owner_comes_back) {
  reader_turn turn;
  owner own{turn};
  for (const bool now : {true, false}) {
    BOOST_TEST_REQUIRE(turn.take([&] { own.interrupt(); }));
    const auto before = own.rounds();
    std::this_thread::sleep_for(10ms);
    BOOST_TEST(own.rounds() == before); // the owner does not read meanwhile
    turn.give_back(now);
    const auto until = std::chrono::steady_clock::now() + patience;
    while (own.rounds() == before && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    BOOST_TEST(own.rounds() > before);
  }
}

// When another thread gives the turn back, the owner must read again at once in these cases. If it
// did not, messages would stay unread forever.
BOOST_AUTO_TEST_CASE(work_for_the_owner) {
  reader_turn turn{1h};
  owner own{turn};
  for (const std::string why : {"recall", "recall while it reads", "refused", "now"}) {
    BOOST_TEST_CONTEXT(why) {
      BOOST_TEST_REQUIRE(turn.take([&] { own.interrupt(); }));
      const auto before = own.rounds();
      turn.give_back(false);
      BOOST_TEST_REQUIRE(turn.take([] {}));
      if (why == "recall while it reads")
        turn.recall();
      if (why == "refused")
        BOOST_TEST(!turn.take([] {}));
      BOOST_TEST(own.rounds() == before);
      turn.give_back(why == "now");
      if (why == "recall")
        turn.recall();
      const auto until = std::chrono::steady_clock::now() + patience;
      while (own.rounds() == before && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
      BOOST_TEST(own.rounds() > before);
    }
  }
}

BOOST_AUTO_TEST_CASE(nobody_takes_a_closed_turn) {
  reader_turn turn;
  owner own{turn};
  BOOST_TEST_REQUIRE(turn.take([&] { own.interrupt(); }));
  auto closing = std::async(std::launch::async, [&] { turn.close([] {}); });
  // close() waits until the other thread gives the turn back.
  BOOST_TEST((closing.wait_for(10ms) == std::future_status::timeout));
  turn.give_back(false);
  closing.get();
  BOOST_TEST(!turn.take([] {}));
}

BOOST_AUTO_TEST_CASE(a_thread_that_waits_handles_messages) {
  conversation two;
  for (std::uint64_t i = 1; i <= 2'000; ++i) {
    conversation::say(*two.channel, i);
    while (!two.mine.read_until([&] { return two.answers == i; }, 100ms))
      ;
  }
  // Between two calls of read_until, the host's own thread may handle some answers.
  BOOST_TEST(two.answers_here > 1'000U);
}

BOOST_AUTO_TEST_CASE(a_thread_that_sleeps_handles_messages) {
  conversation two;
  for (std::uint64_t i = 1; i <= 2'000; ++i) {
    conversation::say(*two.channel, i);
    two.mine.run_until([&] { return two.answers == i; });
    BOOST_TEST_REQUIRE(two.answers == i);
  }
  BOOST_TEST(two.answers_here > 1'000U);
}

// A thread that sleeps in run_until wakes for an interrupt, and when the host stops.
BOOST_AUTO_TEST_CASE(a_thread_that_sleeps_wakes) {
  conversation two;
  std::atomic<bool> done = false;
  std::atomic<int> looks = 0;
  auto sleeper = std::async(std::launch::async, [&] {
    two.mine.run_until([&] {
      ++looks;
      return done.load();
    });
    two.mine.run_until([] { return false; });
  });
  // The thread looks twice before it sleeps.
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (looks < 3 && std::chrono::steady_clock::now() < deadline) {
    two.mine.interrupt();
    std::this_thread::sleep_for(100us);
  }
  BOOST_TEST(looks > 2);
  done = true;
  two.mine.interrupt();
  BOOST_TEST((sleeper.wait_for(10ms)
              == std::future_status::timeout)); // the thread sleeps in the second run_until
  two.mine.stop();
  BOOST_TEST_REQUIRE((sleeper.wait_for(patience) == std::future_status::ready));
  two.mine.run_until([] { return false; }); // returns at once
}

BOOST_AUTO_TEST_CASE(afterwards_the_host_reads_again) {
  conversation two;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    // With even i, the wait ends with an answer. With odd i, nothing arrives in time.
    const auto awaited = two.answers + 1;
    if (i % 2 == 0) {
      conversation::say(*two.channel, i);
      BOOST_TEST(two.mine.read_until([&] { return two.answers == awaited; }, patience));
    } else {
      BOOST_TEST(!two.mine.read_until([] { return false; }, 1ms));
    }
    const auto here = two.answers_here.load();
    const auto next = two.answers + 1;
    conversation::say(*two.channel, i);
    const auto until = std::chrono::steady_clock::now() + patience;
    while (two.answers < next && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    BOOST_TEST_REQUIRE(two.answers == next);
    BOOST_TEST(two.answers_here == here);
  }
}

BOOST_AUTO_TEST_CASE(several_threads_that_wait) {
  conversation two;
  std::atomic<bool> ended = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      while (!ended)
        two.mine.read_until([&] { return ended.load(); }, 200us);
    });
  for (std::uint64_t i = 1; i <= 500; ++i) {
    conversation::say(*two.channel, i);
    while (!two.mine.read_until([&] { return two.answers == i; }, 1ms))
      ;
  }
  ended = true;
  for (auto& x : others)
    x.join();
  BOOST_TEST(two.answers == 500U);
}

BOOST_AUTO_TEST_CASE(a_host_that_stops) {
  conversation two;
  auto waits =
    std::async(std::launch::async, [&] { return two.mine.read_until([] { return false; }, 50ms); });
  std::this_thread::sleep_for(5ms);
  two.mine.stop();
  BOOST_TEST(!waits.get());
  BOOST_TEST(!two.mine.read_until([] { return false; }, patience));
}

BOOST_AUTO_TEST_SUITE_END()
