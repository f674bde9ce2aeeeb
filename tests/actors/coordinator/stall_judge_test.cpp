#include "actors/coordinator/stall_judge.hpp"

#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
using status = proto::TaskStatus;
using kind = stall_root::kind;
using names = std::vector<task_name>;

BOOST_AUTO_TEST_SUITE(stall_judge)

namespace {

task_name worker(std::uint32_t i) {
  return {job_kind::worker, i};
}

task_name ps(std::uint32_t i) {
  return {job_kind::ps, i};
}

/// Plays the tasks of a run for a stall_judge. They report four times a second, on the clock of
/// this class.
class stage {
public:
  struct actor {
    status::Doing doing = status::COMPUTING;
    names waits_for;
    std::uint64_t steps = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    /// The time between two steps. 0 means that the task makes no steps.
    std::chrono::milliseconds step{0};
    bool paused = false;
    /// Bytes of payloads that this task exchanges with all tasks, and with the coordinator.
    std::uint64_t bytes_per_second = 0;
    std::uint64_t to_coordinator_per_second = 0;
    std::uint64_t bytes = 0;
    std::uint64_t to_coordinator = 0;
    stall_judge::time_point bytes_moved{};
    stall_judge::time_point moved{};
    stall_judge::time_point since{};
  };

  explicit stage(const names& tasks, bool needs_all = true, std::uint64_t steps_between_waits = 1)
    : stage(tasks, stall_conditions{needs_all, false, false, steps_between_waits}) {}

  stage(const names& tasks, const stall_conditions& how) {
    for (auto& x : tasks)
      actors[x].moved = actors[x].since = now;
    judge.begin(tasks, how, now);
  }

  void all_step(std::chrono::milliseconds each) {
    for (auto& [task, x] : actors)
      x.step = each;
  }

  void all_stop() { all_step(0ms); }

  void set(const task_name& task, status::Doing doing, names waits_for = {}) {
    auto& x = actors[task];
    x.doing = doing;
    x.waits_for = std::move(waits_for);
    x.since = now;
  }

  void pause(const task_name& task) { actors[task].paused = true; }

  /// Lets time pass. Returns the notices that the judge gave meanwhile, each with the seconds since
  /// the call.
  std::vector<std::pair<double, std::string>> pass(std::chrono::milliseconds how_long) {
    std::vector<std::pair<double, std::string>> told;
    const auto begin = now;
    while (now < begin + how_long) {
      now += 10ms;
      for (auto& [task, x] : actors) {
        x.bytes += x.bytes_per_second / 100;
        x.to_coordinator += x.to_coordinator_per_second / 100;
        if (x.bytes_per_second > 0)
          x.bytes_moved = now;
      }
      for (auto& [task, x] : actors)
        while (x.step > 0ms && now - x.moved >= x.step) {
          x.moved += x.step;
          ++x.steps;
        }
      if ((now - stall_judge::time_point{}) % 250ms != 0ms)
        continue;
      for (auto& [task, x] : actors)
        if (!x.paused)
          judge.hear(task, tell(x), now);
      for (auto& [task, x] : actors)
        judge.exchange(task, x.to_coordinator, now);
      if (auto text = judge.judge(own, now))
        told.emplace_back(std::chrono::duration<double>(now - begin).count(), *text);
    }
    return told;
  }

  stall_judge judge;
  stall_judge::time_point now = stall_judge::time_point{} + 1h;
  std::map<task_name, actor> actors;
  coordinator_wait own;

private:
  status tell(const actor& x) const {
    const auto seconds = [&](auto t) { return std::chrono::duration<double>(now - t).count(); };
    status result;
    result.set_doing(x.doing);
    result.set_seconds(seconds(x.since));
    for (auto& other : x.waits_for)
      *result.add_waits_for() = to_proto(other);
    result.set_steps(x.steps);
    result.set_step_seconds(seconds(x.moved));
    result.set_pieces_sent(x.sent);
    result.set_pieces_received(x.received);
    if (x.bytes > 0) {
      result.set_payload_bytes(x.bytes);
      result.set_payload_seconds(seconds(x.bytes_moved));
    }
    return result;
  }
};

/// Returns tasks that make steps of 20 ms for three seconds without a notice, and then stop. The
/// test then sets what each of them waits for.
stage healthy(const names& tasks, const stall_conditions& how) {
  stage result{tasks, how};
  result.all_step(20ms);
  BOOST_TEST(result.pass(3s).empty());
  result.all_stop();
  return result;
}

stage healthy(const names& tasks, bool needs_all = true) {
  return healthy(tasks, stall_conditions{needs_all});
}

const names two_and_one{worker(0), worker(1), ps(0)};
const names ring_of_three{worker(0), worker(1), worker(2)};

/// Checks that exactly one notice comes within two seconds, and that it names one cause.
void check(stage& x, kind what, const task_name& task, const task_name& other = {}) {
  const auto told = x.pass(2s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST_MESSAGE(told[0].second);
  BOOST_TEST(told[0].second.find("nothing has moved for ") == 0U);
  BOOST_TEST_REQUIRE(x.judge.roots().size() == 1U);
  const auto& root = x.judge.roots().front();
  BOOST_TEST((root == stall_root{what, task, other}), told[0].second);
}

void wait_in_ring(stage& x) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    x.set(worker(i), status::WAITING_FOR_UPDATE, {worker((i + 2) % 3)});
    x.actors[worker(i)].sent = x.actors[worker(i)].received = 100;
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_paused_worker) {
  auto x = healthy(two_and_one);
  x.pause(worker(1));
  x.set(worker(0), status::WAITING_FOR_UPDATE, {ps(0)});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(1)});
  check(x, kind::silent, worker(1));
}

BOOST_AUTO_TEST_CASE(a_paused_worker_of_a_ring) {
  auto x = healthy(ring_of_three);
  wait_in_ring(x);
  x.pause(worker(1));
  x.actors[worker(0)].sent = 102;
  check(x, kind::silent, worker(1));
}

BOOST_AUTO_TEST_CASE(a_paused_shard) {
  for (const bool in_step : {true, false}) {
    auto x = healthy({worker(0), worker(1), ps(0), ps(1)}, in_step);
    x.pause(ps(1));
    for (const auto i : {0U, 1U})
      x.set(worker(i), status::WAITING_FOR_UPDATE, {ps(1)});
    x.set(ps(0), status::WAITING_FOR_GRADIENTS, in_step ? names{worker(0), worker(1)} : names{});
    check(x, kind::silent, ps(1));
  }
}

BOOST_AUTO_TEST_CASE(several_paused_tasks) {
  auto x = healthy(two_and_one);
  x.pause(worker(1));
  x.pause(ps(0));
  x.set(worker(0), status::WAITING_FOR_WEIGHTS, {ps(0)});
  BOOST_TEST(x.pass(2s).size() == 1U);
  BOOST_TEST(
    (x.judge.roots()
     == std::vector<stall_root>{{kind::silent, worker(1), {}}, {kind::silent, ps(0), {}}}));
}

BOOST_AUTO_TEST_CASE(nobody_is_heard_of) {
  auto x = healthy(two_and_one);
  for (auto& task : two_and_one)
    x.pause(task);
  const auto told = x.pass(2s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST(x.judge.roots().size() == 3U);
}

BOOST_AUTO_TEST_CASE(a_dead_link_to_a_shard) {
  // With synchronous steps, workers and shards wait for each other.
  auto in_step = healthy({worker(0), worker(1), worker(2), ps(0), ps(1)});
  for (const auto i : {0U, 1U, 2U})
    in_step.set(worker(i), status::WAITING_FOR_UPDATE, {ps(0)});
  in_step.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(2)});
  in_step.set(ps(1), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1), worker(2)});
  check(in_step, kind::link, worker(2), ps(0));

  // In an asynchronous run, the shard waits for no particular task. Worker 1 has no more samples in
  // this epoch.
  auto free = healthy(two_and_one, false);
  free.set(worker(0), status::WAITING_FOR_WEIGHTS, {ps(0)});
  free.set(worker(1), status::WAITING_FOR_LEASE, {coordinator_task});
  free.set(ps(0), status::WAITING_FOR_GRADIENTS);
  free.own = {coordinator_wait::reason::leases, {worker(0)}};
  check(free, kind::link, worker(0), ps(0));
}

// The shards clip by the norm of the gradient, so each of them needs the part of the norm from the
// other. The link between them breaks before shard 1 gets the part of shard 0. With `ahead`, shard
// 0 got the part of shard 1 earlier and is one step ahead.
BOOST_AUTO_TEST_CASE(a_dead_link_between_shards) {
  for (const bool ahead : {false, true}) {
    auto x = healthy({worker(0), worker(1), ps(0), ps(1)});
    for (const auto i : {0U, 1U})
      x.set(worker(i), status::WAITING_FOR_UPDATE, ahead ? names{ps(1)} : names{ps(0), ps(1)});
    x.set(ps(1), status::WAITING_FOR_NORM, {ps(0)});
    if (ahead) {
      x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
      ++x.actors[ps(0)].steps;
    } else {
      x.set(ps(0), status::WAITING_FOR_NORM, {ps(1)});
    }
    check(x, kind::link, ps(0), ps(1));
  }
}

BOOST_AUTO_TEST_CASE(a_shard_without_gradients_whose_norm_others_wait_for) {
  auto x = healthy({worker(0), worker(1), ps(0), ps(1)});
  x.set(worker(0), status::WAITING_FOR_UPDATE, {ps(0), ps(1)});
  x.set(ps(0), status::WAITING_FOR_NORM, {ps(1)});
  x.set(ps(1), status::WAITING_FOR_GRADIENTS, {worker(1)});
  x.pause(worker(1));
  check(x, kind::silent, worker(1));
}

BOOST_AUTO_TEST_CASE(a_dead_link_of_a_ring) {
  for (const auto left : {0U, 1U, 2U}) {
    auto x = healthy(ring_of_three);
    wait_in_ring(x);
    x.actors[worker(left)].sent = 103;
    check(x, kind::link, worker(left), worker((left + 1) % 3));
  }
}

BOOST_AUTO_TEST_CASE(a_shard_that_answers_nobody) {
  auto x = healthy(two_and_one);
  for (const auto i : {0U, 1U})
    x.set(worker(i), status::WAITING_FOR_WEIGHTS, {ps(0)});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  check(x, kind::unresponsive, ps(0));
}

BOOST_AUTO_TEST_CASE(weights_that_do_not_come_at_the_end_of_an_epoch) {
  auto x = healthy({worker(0), ps(0), ps(1)});
  x.set(worker(0), status::WAITING_FOR_LEASE, {coordinator_task});
  for (const auto i : {0U, 1U})
    x.set(ps(i), status::WAITING_FOR_GRADIENTS, {worker(0)});
  x.own = {coordinator_wait::reason::weights, {ps(1)}};
  check(x, kind::unresponsive, ps(1));
}

BOOST_AUTO_TEST_CASE(a_stuck_input_and_a_stuck_trainer) {
  for (const auto& [doing, what] : {std::pair{status::WAITING_FOR_DATA, kind::reading},
                                    std::pair{status::COMPUTING, kind::computing}}) {
    auto shards = healthy(two_and_one);
    shards.set(worker(0), status::WAITING_FOR_UPDATE, {ps(0)});
    shards.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(1)});
    shards.set(worker(1), doing);
    check(shards, what, worker(1));

    auto ring = healthy(ring_of_three);
    wait_in_ring(ring);
    ring.set(worker(2), doing);
    check(ring, what, worker(2));
  }
}

BOOST_AUTO_TEST_CASE(a_shard_without_room) {
  auto x = healthy(two_and_one, false);
  for (const auto i : {0U, 1U})
    x.set(worker(i), status::WAITING_FOR_UPDATE, {ps(0)});
  x.set(ps(0), status::WAITING_FOR_READERS);
  check(x, kind::readers, ps(0));
  x.set(ps(0), status::UPDATING);
  BOOST_TEST(x.pass(30s).size() > 0U);
  BOOST_TEST((x.judge.roots().front().what == kind::updating));
}

BOOST_AUTO_TEST_CASE(a_stuck_evaluation) {
  auto x = healthy(two_and_one);
  for (const auto i : {0U, 1U})
    x.set(worker(i), status::WAITING_FOR_LEASE, {coordinator_task});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  x.own = {coordinator_wait::reason::evaluation, {}, 1500ms};
  check(x, kind::evaluating, coordinator_task);
}

// Each rank of the ring waits for its left neighbor, except rank 1, whose synchronizer hangs and
// waits for no task.
BOOST_AUTO_TEST_CASE(a_synchronizer_that_hangs) {
  for (const auto doing : {status::WAITING_FOR_UPDATE, status::WAITING_FOR_WEIGHTS}) {
    auto x = healthy(ring_of_three);
    wait_in_ring(x);
    x.set(worker(1), doing);
    check(x, kind::updating, worker(1));
  }
}

// -- cases without a notice ---------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_long_evaluation) {
  auto x = healthy(two_and_one);
  for (const auto i : {0U, 1U})
    x.set(worker(i), status::WAITING_FOR_LEASE, {coordinator_task});
  x.own = {coordinator_wait::reason::evaluation, {}, 20s};
  BOOST_TEST(x.pass(19s).empty());
}

BOOST_AUTO_TEST_CASE(a_slow_first_step) {
  stage x{two_and_one};
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  BOOST_TEST(x.pass(19s).empty());
}

BOOST_AUTO_TEST_CASE(slow_steps) {
  stage x{two_and_one};
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  x.all_step(7s);
  BOOST_TEST(x.pass(3min).empty());
  // Slower steps than before are not a stall.
  x.all_step(20s);
  BOOST_TEST(x.pass(1min).empty());
}

// Sixteen steps of 20 ms, then 1.2 s in which the workers average their weights. The judge measures
// the time between two waits, so it accepts 1.2 s only if it knows that 16 steps come between two
// waits.
BOOST_AUTO_TEST_CASE(many_steps_between_two_waits) {
  for (const std::uint64_t steps_between_waits : {1, 16}) {
    stage x{ring_of_three, true, steps_between_waits};
    x.all_step(20ms);
    BOOST_TEST(x.pass(3s).empty());
    x.all_stop();
    for (std::uint32_t i = 0; i < 3; ++i)
      x.set(worker(i), status::WAITING_FOR_UPDATE);
    BOOST_TEST(x.pass(1250ms).empty() == (steps_between_waits == 16));
    BOOST_TEST(!x.pass(1s).empty() == (steps_between_waits == 16));
  }
}

BOOST_AUTO_TEST_CASE(steps_that_become_slow) {
  auto x = healthy(two_and_one);
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  x.all_step(3s);
  // A step takes 3 s instead of 20 ms. At first, the run looks stalled. Then a second notice says
  // that the run continues.
  const auto told = x.pass(1min);
  BOOST_TEST_REQUIRE(told.size() == 2U);
  BOOST_TEST(told[1].second.find("training continues") == 0U);
}

BOOST_AUTO_TEST_CASE(a_straggler) {
  auto x = healthy(two_and_one, false);
  x.actors[worker(1)].step = 20ms;
  x.actors[ps(0)].step = 20ms;
  x.set(worker(0), status::COMPUTING);
  BOOST_TEST(x.pass(1min).empty());
}

BOOST_AUTO_TEST_CASE(a_straggler_at_the_end_of_an_epoch) {
  stage x{two_and_one, false};
  x.all_step(20ms);
  x.actors[worker(1)].step = 2s;
  BOOST_TEST(x.pass(10s).empty());
  x.actors[worker(0)].step = x.actors[ps(0)].step = 0ms;
  x.set(worker(0), status::WAITING_FOR_LEASE, {coordinator_task});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS);
  x.own = {coordinator_wait::reason::leases, {worker(1)}};
  BOOST_TEST(x.pass(20s).empty());
}

BOOST_AUTO_TEST_CASE(a_worker_that_left) {
  auto x = healthy(two_and_one, false);
  x.actors.erase(worker(1));
  x.judge.forget(worker(1));
  x.all_step(20ms);
  BOOST_TEST(x.pass(10s).empty());
}

// The process of the coordinator was paused for a minute. It heard no reports meanwhile, but this
// does not prove a stall.
BOOST_AUTO_TEST_CASE(the_coordinator_was_asleep) {
  auto x = healthy(two_and_one);
  x.now += 1min;
  for (auto& [task, actor] : x.actors)
    actor.moved = x.now;
  BOOST_TEST(!x.judge.judge(x.own, x.now).has_value());
  x.all_step(20ms);
  BOOST_TEST(x.pass(5s).empty());
}

// -- times of notices ---------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(notices_become_rare_and_end) {
  auto x = healthy(two_and_one);
  const auto stop = [&] {
    x.all_stop();
    x.pause(worker(1));
    x.set(worker(0), status::WAITING_FOR_UPDATE, {ps(0)});
    x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(1)});
  };
  stop();
  const auto told = x.pass(100s);
  BOOST_TEST_REQUIRE(told.size() == 4U); // after 1, 11, 31 and 71 seconds
  BOOST_TEST(told[0].first < 2);
  BOOST_TEST(told[3].first > 70);
  for (auto& y : told)
    BOOST_TEST(y.second.find("worker/1 is paused") != std::string::npos, y.second);

  x.actors[worker(1)].paused = false;
  for (auto& [task, actor] : x.actors)
    actor.moved = x.now;
  x.all_step(20ms);
  const auto after = x.pass(3s);
  BOOST_TEST_REQUIRE(after.size() == 1U);
  BOOST_TEST(after[0].second.find("training continues") == 0U, after[0].second);
  BOOST_TEST(x.judge.roots().empty());

  // The pause does not count as a slow step. So the next stall is noticed as early as one without a
  // pause before it.
  stop();
  check(x, kind::silent, worker(1));
}

BOOST_AUTO_TEST_CASE(words) {
  auto x = healthy(ring_of_three);
  x.pause(worker(1));
  x.set(worker(0), status::WAITING_FOR_UPDATE, {worker(2)});
  x.set(worker(2), status::WAITING_FOR_UPDATE, {worker(1)});
  const auto told = x.pass(2s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  const auto& text = told[0].second;
  for (const auto* part :
       {"(a step takes 0.02 s)", "worker/0 waits for gradients from worker/2 (1.0 s)",
        "worker/2 waits for gradients from worker/1 (1.0 s)",
        "Root: worker/1 is paused, hangs or is cut off: nothing heard from it for ",
        "`kill -CONT PID` wakes a paused process; if you end the process, the run ends"})
    BOOST_TEST(text.find(part) != std::string::npos, text);
}

// Weights are on their way over a slow network. When they no longer move, the shard is the cause.
BOOST_AUTO_TEST_CASE(a_transfer_in_progress) {
  auto x = healthy(two_and_one);
  x.set(worker(0), status::WAITING_FOR_WEIGHTS, {ps(0)});
  x.set(worker(1), status::WAITING_FOR_WEIGHTS, {ps(0)});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  for (const auto i : {0U, 1U})
    x.actors[worker(i)].bytes_per_second = 250'000;
  auto told = x.pass(6s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST(
    contains(told[0].second,
             "Root: a transfer between worker/0 and ps/0 is in progress, 0.25 MB/s; a "
             "transfer between worker/1 and ps/0 is in progress, 0.25 MB/s. It takes long"),
    told[0].second);
  BOOST_TEST(!contains(told[0].second, "debugger"), told[0].second);
  for (const auto i : {0U, 1U})
    x.actors[worker(i)].bytes_per_second = 0;
  told = x.pass(12s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST(contains(told[0].second, "ps/0 is alive, but does not answer"), told[0].second);
}

BOOST_AUTO_TEST_CASE(a_transfer_in_a_ring) {
  auto x = healthy(ring_of_three);
  wait_in_ring(x);
  x.actors[worker(0)].sent = 102;
  x.actors[worker(1)].bytes_per_second = 1'000'000;
  check(x, kind::transfer, worker(0), worker(1));
}

// The weights of a shard delay its reports to the coordinator. So the shard is not silent.
BOOST_AUTO_TEST_CASE(a_transfer_to_the_coordinator) {
  auto x = healthy(two_and_one);
  for (const auto i : {0U, 1U})
    x.set(worker(i), status::WAITING_FOR_LEASE, {coordinator_task});
  x.own = {coordinator_wait::reason::weights, {ps(0)}};
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0), worker(1)});
  BOOST_TEST(x.pass(250ms).empty());
  x.pause(ps(0));
  x.actors[ps(0)].to_coordinator_per_second = 100'000;
  check(x, kind::transfer, ps(0), coordinator_task);
}

// If the network of the coordinator's host fails, the coordinator hears from no task.
BOOST_AUTO_TEST_CASE(all_tasks_fall_silent_at_once) {
  for (const bool network : {true, false}) {
    auto x = healthy(two_and_one, stall_conditions{.needs_all = false, .network = network});
    for (auto& task : two_and_one)
      x.pause(task);
    const auto told = x.pass(2s);
    BOOST_TEST_REQUIRE(told.size() == 1U);
    const auto& text = told[0].second;
    BOOST_TEST_MESSAGE(text);
    if (network) {
      BOOST_TEST(contains(text, "nothing heard from any task (worker/0, worker/1 and ps/0)"));
      BOOST_TEST(contains(text, "the likely cause is the network of the coordinator's host"));
    } else {
      // The advice is given once. It says for each task what its end causes.
      BOOST_TEST(contains(text,
                          "wakes a paused process; if you end the process of worker/0 and "
                          "worker/1, the others train its samples; if you end the process of "
                          "ps/0, the run ends"));
    }
  }
}

// Tasks that fall silent one after the other are more likely to be paused or lost.
BOOST_AUTO_TEST_CASE(all_tasks_fall_silent_one_after_the_other) {
  auto x = healthy(two_and_one, stall_conditions{.needs_all = true, .network = true});
  x.pause(worker(0));
  x.set(worker(1), status::WAITING_FOR_UPDATE, {ps(0)});
  x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(0)});
  BOOST_TEST(x.pass(5s).size() == 1U);
  x.pause(worker(1));
  x.pause(ps(0));
  const auto told = x.pass(8s);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST(contains(told[0].second, "worker/0 is paused"), told[0].second);
}

BOOST_AUTO_TEST_CASE(the_end_of_a_process) {
  for (const bool elastic : {true, false}) {
    auto x = healthy(two_and_one, stall_conditions{.needs_all = true, .elastic = elastic});
    x.pause(worker(1));
    x.set(worker(0), status::WAITING_FOR_UPDATE, {ps(0)});
    x.set(ps(0), status::WAITING_FOR_GRADIENTS, {worker(1)});
    const auto told = x.pass(2s);
    BOOST_TEST_REQUIRE(told.size() == 1U);
    BOOST_TEST(told[0].second.ends_with(elastic ? "the run continues from its newest checkpoint"
                                                : "the run ends"),
               told[0].second);
  }
}

BOOST_AUTO_TEST_SUITE_END()
