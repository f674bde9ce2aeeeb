#include "messages/scheduler.hpp"

#include "messages/caf_shim.hpp"
#include "messages/configure.hpp"

#include <caf/all.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <sched.h>

namespace troupe {

namespace {

using thread_ids = std::vector<std::thread::id>;

/// A message that several actors pass on.
struct visit {
  std::shared_ptr<thread_ids> threads = std::make_shared<thread_ids>();
  std::shared_ptr<std::promise<void>> done = std::make_shared<std::promise<void>>();
  /// How often the last actor sends the message to itself before it fulfills `done`.
  int again = 0;
  /// `slow`: the first actor takes longer than a turn (the time that a thread gives one actor).
  /// `renews`: it renews its turn meanwhile.
  bool slow = false;
  bool renews = false;
  /// The rounding mode on the thread of each actor.
  std::shared_ptr<std::vector<int>> rounding = std::make_shared<std::vector<int>>();
};

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::visit)

namespace troupe {

namespace {

/// An actor that records its thread and passes the visit on to the next actor.
class stop_on_the_way : public caf::event_based_actor {
public:
  stop_on_the_way(caf::actor_config& cfg, caf::actor next)
    : event_based_actor(cfg), next_(std::move(next)) {}

protected:
  caf::behavior make_behavior() override {
    return {[this](const visit& x) {
      if (x.slow && x.threads->empty())
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      if (x.renews && x.threads->empty())
        renew_turn();
      x.threads->push_back(std::this_thread::get_id());
      x.rounding->push_back(std::fegetround());
      if (next_)
        send(next_, x);
      else if (x.again > 0)
        send(this, visit{x.threads, x.done, x.again - 1, x.slow, x.renews, x.rounding});
      else
        x.done->set_value();
    }};
  }

private:
  caf::actor next_;
};

/// Three actors, of which each knows the next one.
struct way {
  way() {
    configure(cfg);
    tune(cfg);
    sys.emplace(cfg);
    const caf::actor last = sys->spawn<stop_on_the_way>(nullptr);
    const caf::actor middle = sys->spawn<stop_on_the_way>(last);
    first = sys->spawn<stop_on_the_way>(middle);
  }

  ~way() { caf::anon_send_exit(first, caf::exit_reason::user_shutdown); }

  visit go_as(visit x) {
    caf::anon_send(first, x);
    x.done->get_future().wait();
    return x;
  }

  thread_ids go(int again = 0) { return *go_as({.again = again}).threads; }

  /// Sends visits until all actors of a visit run on the same thread, and `where` is true for this
  /// thread. Then returns true. Several visits may be needed: an actor may still be busy on another
  /// thread, with its start or the previous visit.
  bool stays(std::function<bool(std::thread::id)> where) {
    for (int i = 0; i < 10'000; ++i)
      if (const auto threads = go();
          std::ranges::all_of(threads, [&](auto& x) { return x == threads.front() && where(x); }))
        return true;
    return false;
  }

  caf::actor_system_config cfg;
  std::optional<caf::actor_system> sys;
  caf::actor first;
};

bool is_this(std::thread::id x) {
  return x == std::this_thread::get_id();
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler)

BOOST_AUTO_TEST_CASE(an_actor_that_another_one_wakes_runs_on_the_same_thread) {
  way x;
  BOOST_TEST(x.stays([](auto id) { return !is_this(id); }));
}

BOOST_AUTO_TEST_CASE(receivers_run_on_a_thread_that_wants_them) {
  way x;
  const receivers_run_here here;
  BOOST_TEST(x.stays(is_this));
}

BOOST_AUTO_TEST_CASE(only_while_the_thread_wants_them) {
  way x;
  {
    const receivers_run_here here;
    const receivers_run_here nested;
  }
  for (int i = 0; i < 100; ++i)
    BOOST_TEST(std::ranges::none_of(x.go(), is_this));
}

BOOST_AUTO_TEST_CASE(an_actor_with_many_messages_does_not_hold_the_thread_for_ever) {
  way x;
  const receivers_run_here here;
  BOOST_REQUIRE(x.stays(is_this));
  const auto threads = x.go(10'000);
  BOOST_TEST(threads.size() == 10'003U);
  BOOST_TEST(!is_this(threads.back()));
}

// If an actor is slow, another thread is woken for the actors that got messages from it. Otherwise,
// these would wait until the slow actor is done.
BOOST_AUTO_TEST_CASE(receivers_of_a_slow_actor_run_on_another_thread) {
  way x;
  const receivers_run_here here;
  BOOST_REQUIRE(x.stays(is_this));
  const auto threads = *x.go_as({.slow = true}).threads;
  BOOST_TEST(is_this(threads.front()));
  BOOST_TEST(!is_this(threads.back()));
}

BOOST_AUTO_TEST_CASE(receivers_of_an_actor_that_renews_its_turn_run_here) {
  way x;
  const receivers_run_here here;
  BOOST_REQUIRE(x.stays(is_this));
  // Tries again, because the system may take the processor from this thread after it has renewed
  // its turn (the time in which it runs the receivers of its messages itself).
  bool all_here = false;
  for (int i = 0; i < 1'000 && !all_here; ++i)
    all_here = std::ranges::all_of(*x.go_as({.slow = true, .renews = true}).threads, is_this);
  BOOST_TEST(all_here);
}

BOOST_AUTO_TEST_CASE(receivers_do_not_see_the_floating_point_mode_of_the_thread) {
  way x;
  const receivers_run_here here;
  BOOST_REQUIRE(x.stays(is_this));
  std::fesetround(FE_UPWARD);
  const auto visited = x.go_as({});
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  BOOST_TEST(std::ranges::all_of(*visited.threads, is_this));
  BOOST_TEST(std::ranges::all_of(*visited.rounding, [](int y) { return y == FE_TONEAREST; }));
  BOOST_TEST(after == FE_UPWARD);
}

// A thread that is bound to one processor starts an actor with its own thread. The new thread must
// be allowed on all processors.
BOOST_AUTO_TEST_CASE(actors_may_use_all_processors) {
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  caf::actor_system sys{cfg};
  cpu_set_t all;
  BOOST_TEST_REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  std::promise<cpu_set_t> of_actor;
  std::thread{[&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &all))
      ++first;
    CPU_SET(first, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    sys.spawn<caf::detached>([&](caf::event_based_actor*) {
      cpu_set_t own;
      ::sched_getaffinity(0, sizeof own, &own);
      of_actor.set_value(own);
    });
  }}.join();
  const auto own = of_actor.get_future().get();
  BOOST_TEST(CPU_EQUAL(&own, &all));
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace troupe
