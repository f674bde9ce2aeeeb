#include "actors/spawner.hpp"

#include "messages/configure.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {

namespace {

/// A message for a counting_actor. The actor appends its thread to `threads`. When `threads` has
/// `most` entries, the actor fulfills `done`.
struct counted {
  std::size_t most = 0;
  std::shared_ptr<std::vector<std::thread::id>> threads;
  std::shared_ptr<std::promise<void>> done;
};

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::counted)

namespace troupe {

namespace {

class counting_actor : public caf::event_based_actor {
public:
  using event_based_actor::event_based_actor;

protected:
  caf::behavior make_behavior() override {
    return {[](const counted& x) {
      x.threads->push_back(std::this_thread::get_id());
      if (x.threads->size() == x.most)
        x.done->set_value();
    }};
  }
};

/// An actor that sends `most` copies of a message to another actor at once.
class flood : public caf::event_based_actor {
public:
  flood(caf::actor_config& cfg, caf::actor to) : event_based_actor(cfg), to_(std::move(to)) {}

protected:
  caf::behavior make_behavior() override {
    return {[this](const counted& x) {
      for (std::size_t i = 0; i < x.most; ++i)
        send(to_, x);
    }};
  }

private:
  caf::actor to_;
};

struct setting {
  setting() {
    configure(cfg);
    tune(cfg);
  }

  caf::actor_system_config cfg;
};

/// Sends messages to an actor. Returns the threads that handled them.
std::vector<std::thread::id> messages_to(const caf::actor& x, std::size_t most) {
  const counted what{most, std::make_shared<std::vector<std::thread::id>>(),
                     std::make_shared<std::promise<void>>()};
  caf::anon_send(x, what);
  what.done->get_future().wait();
  return *what.threads;
}

} // namespace

/// A task for idle threads that waits for interrupt().
class idle_wait : public idle_task {
public:
  void run_until(function_ref<bool()> done) override {
    std::unique_lock lock{mutex_};
    ++waits;
    while (!done()) {
      changed_.wait(lock, [this] { return interrupted_; });
      interrupted_ = false;
    }
  }

  void interrupt() override {
    const std::lock_guard guard{mutex_};
    ++interrupts;
    interrupted_ = true;
    changed_.notify_all();
  }

  std::atomic<std::size_t> waits = 0;
  std::atomic<std::size_t> interrupts = 0;

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool interrupted_ = false;
};

BOOST_AUTO_TEST_SUITE(computing_actors)

// While it has no messages, the actor's thread runs the idle task. A message ends this, even if it
// arrives just when the task begins.
BOOST_AUTO_TEST_CASE(do_something_while_they_wait) {
  setting x;
  const auto idle = std::make_shared<idle_wait>();
  {
    caf::actor_system sys{x.cfg};
    const caf::actor computing =
      spawner{spawner::kind::threads, idle}.spawn_computing<counting_actor>(sys);
    for (std::size_t i = 1; i <= 2'000; ++i) {
      const auto threads = messages_to(computing, 1);
      BOOST_TEST_REQUIRE(threads.size() == 1U);
      BOOST_TEST_REQUIRE((threads[0] != std::this_thread::get_id()));
      if (i % 100 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds{1}); // so that the wait has begun
    }
    caf::anon_send_exit(computing, caf::exit_reason::user_shutdown);
  }
  BOOST_TEST(idle->waits >= 10U);
  BOOST_TEST(idle->interrupts >= 10U);
  BOOST_TEST(idle.use_count() == 1); // the actor has been destroyed
}

BOOST_AUTO_TEST_CASE(wait_as_usual_without_such_a_task) {
  setting x;
  caf::actor_system sys{x.cfg};
  const caf::actor computing = spawner{}.spawn_computing<counting_actor>(sys);
  for (std::size_t i = 0; i < 100; ++i)
    BOOST_TEST(messages_to(computing, 1).size() == 1U);
  caf::anon_send_exit(computing, caf::exit_reason::user_shutdown);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(brief_actors)

// An actor handles messages on the sender's thread, but only a few in a row. The test repeats this
// until it happens, because the actor may still be starting on another thread.
BOOST_AUTO_TEST_CASE(hold_the_thread_of_the_sender_for_few_messages) {
  constexpr auto few = in_short_turns<counting_actor>::most_messages;
  setting x;
  caf::actor_system sys{x.cfg};
  const caf::actor brief = spawner{}.spawn_brief<counting_actor>(sys);
  const caf::actor sender = sys.spawn<flood>(brief);
  const receivers_run_here here;
  const auto here_of = [](auto& threads) {
    return static_cast<std::size_t>(std::ranges::count(threads, std::this_thread::get_id()));
  };
  std::size_t most = 0;
  for (int i = 0; i < 10'000 && most == 0; ++i) {
    const auto threads = messages_to(sender, 10 * few);
    most = here_of(threads);
  }
  BOOST_TEST(most == few);
  caf::anon_send_exit(brief, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(sender, caf::exit_reason::user_shutdown);
}

BOOST_AUTO_TEST_CASE(are_cooperative_in_simulations) {
  setting x;
  caf::actor_system sys{x.cfg};
  const caf::actor plain = spawner{spawner::kind::cooperative}.spawn_brief<counting_actor>(sys);
  BOOST_TEST(
    dynamic_cast<in_short_turns<counting_actor>*>(caf::actor_cast<caf::abstract_actor*>(plain))
    == nullptr);
  caf::anon_send_exit(plain, caf::exit_reason::user_shutdown);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace troupe
