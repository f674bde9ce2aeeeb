#include "tests/actors/collective/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(collective_deadlines)

namespace {

/// A rank that receives requests and never answers, like a stopped process.
class stopped_peer : public collective_peer::base {
public:
  using collective_peer::base::base;

protected:
  behavior_type make_behavior() override {
    return {
      [](const proto::CollectivePiece&, const payload&) {},
      [this](const proto::CollectiveQuestion&) -> caf::result<proto::CollectiveStanding> {
        questions_.push_back(make_response_promise<proto::CollectiveStanding>());
        return questions_.back();
      },
      [](const proto::CollectiveFailure&) {},
      [](const proto::CollectiveLeave&) {},
    };
  }

  /// An unanswered request (a promise) keeps its actor alive. So all requests are dropped at the
  /// end.
  void on_exit() override { questions_.clear(); }

private:
  std::vector<caf::typed_response_promise<proto::CollectiveStanding>> questions_;
};

/// A group of four ranks on virtual time. Rank 3 is stopped.
struct three_and_a_stopped_one {
  explicit three_and_a_stopped_one(all_reduce_schedule schedule) {
    cfg.set("scheduler.policy", caf::atom("testing"));
    sys = std::make_unique<caf::actor_system>(cfg);
    scheduler = &dynamic_cast<caf::scheduler::test_coordinator&>(sys->scheduler());
    meet_members all;
    for (std::size_t r = 0; r < 3; ++r) {
      member_options how{.rank = r, .ranks = 4, .schedule = schedule};
      how.deadline = 1'000ms;
      members.push_back(sys->spawn<collective_member>(how));
      all.peers.emplace_back(members[r]);
    }
    stopped = sys->spawn<stopped_peer>();
    all.peers.emplace_back(stopped);
    for (std::size_t r = 0; r < 3; ++r) {
      auto others = all;
      others.peers[r] = nullptr;
      caf::anon_send(members[r], std::move(others));
    }
  }

  ~three_and_a_stopped_one() {
    for (auto& x : members)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(stopped, caf::exit_reason::user_shutdown);
    scheduler->run();
    scheduler->clock().cancel_all();
    scheduler->run();
  }

  /// Requests a sum from a rank, as its program would.
  void ask(std::size_t rank) {
    // `rank` is passed as an argument, because CAF would bind a reference to null in a function
    // without arguments.
    sys->spawn(
      [this](caf::event_based_actor* self, std::size_t r) {
        self->request(members[r], caf::infinite, all_reduce{payload::floats(100)})
          .then([](const all_reduced&) {},
                [this, r](const caf::error& error) { failures[r] = failure_of(error); });
      },
      rank);
    scheduler->run();
  }

  void pass(std::chrono::milliseconds time) {
    for (auto t = 0ms; t < time; t += 25ms) {
      scheduler->clock().advance_time(25ms);
      scheduler->run();
    }
  }

  config cfg;
  std::unique_ptr<caf::actor_system> sys;
  caf::scheduler::test_coordinator* scheduler = nullptr;
  std::vector<collective_member_actor> members;
  collective_peer stopped;
  std::array<std::optional<collective_failure>, 3> failures;
};

} // namespace

BOOST_AUTO_TEST_CASE(all_know_within_twice_the_deadline) {
  for (const auto schedule :
       {all_reduce_schedule::direct, all_reduce_schedule::ring, all_reduce_schedule::one_shot}) {
    three_and_a_stopped_one x{schedule};
    for (std::size_t r = 0; r < 3; ++r) {
      x.ask(r);
      x.pass(100ms);
    }
    x.pass(600ms);
    for (const auto& failure : x.failures)
      BOOST_TEST(!failure);
    // The last request came 700 ms ago, so the deadline has not passed yet.
    x.pass(1'300ms);
    for (const auto& failure : x.failures) {
      BOOST_REQUIRE(failure);
      BOOST_TEST((failure->code == errc::timed_out));
      BOOST_TEST(failure->rank == 3u);
      BOOST_TEST(failure->number == 1u);
      BOOST_TEST(failure->step >= 1u);
      BOOST_TEST((failure->waited >= 1'000ms && failure->waited < 2'000ms));
      BOOST_TEST(failure->text.find("rank 3 does not answer") == 0u, failure->text);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_dies_is_known_at_once) {
  three_and_a_stopped_one x{all_reduce_schedule::ring};
  x.ask(0);
  x.ask(1);
  caf::anon_send_exit(x.stopped, caf::exit_reason::kill);
  x.scheduler->run();
  x.ask(2);
  for (const auto& failure : x.failures) {
    BOOST_REQUIRE(failure);
    BOOST_TEST((failure->code == errc::link_lost));
    BOOST_TEST(failure->rank == 3u);
    BOOST_TEST(failure->text.find("rank 3 is gone") == 0u, failure->text);
  }
}

// If no request waits, there is no deadline, and nothing fails.
BOOST_AUTO_TEST_CASE(an_idle_group_has_no_deadline) {
  three_and_a_stopped_one x{all_reduce_schedule::direct};
  x.pass(5'000ms);
  for (const auto& failure : x.failures)
    BOOST_TEST(!failure);
}

BOOST_AUTO_TEST_SUITE_END()
