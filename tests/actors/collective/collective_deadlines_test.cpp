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
    how.schedule = schedule;
    how.ranks = 4;
    how.deadline = 1'000ms;
    cfg.set("scheduler.policy", caf::atom("testing"));
    sys = std::make_unique<caf::actor_system>(cfg);
    scheduler = &dynamic_cast<caf::scheduler::test_coordinator&>(sys->scheduler());
    meet_members all;
    for (std::size_t r = 0; r < 3; ++r) {
      how.rank = r;
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

  /// Sends the vector of rank 3 for all-reduce 1 to a rank, as if rank 3 had stopped afterwards.
  /// The schedule is `one_shot`.
  void send_vector_of_stopped(std::size_t rank) {
    auto header = whole_of(how, 1, element_kind::float32, 100);
    header.set_from(3);
    header.set_step(1);
    caf::anon_send(members[rank], std::move(header), payload::floats(100));
    scheduler->run();
  }

  void pass(std::chrono::milliseconds time) {
    for (auto t = 0ms; t < time; t += 25ms) {
      scheduler->clock().advance_time(25ms);
      scheduler->run();
    }
  }

  config cfg;
  member_options how;
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

// Rank 3 has sent its vector to ranks 1 and 2, but not to rank 0. So ranks 1 and 2 wait in the next
// all-reduce, in which rank 0 cannot take part. Rank 2 asks first, and must not blame rank 0.
BOOST_AUTO_TEST_CASE(a_rank_that_waits_in_an_earlier_all_reduce_is_not_at_fault) {
  three_and_a_stopped_one x{all_reduce_schedule::one_shot};
  x.ask(1);
  x.pass(50ms);
  x.ask(0);
  x.pass(25ms);
  x.ask(2);
  x.send_vector_of_stopped(1);
  x.send_vector_of_stopped(2);
  x.ask(1);
  x.ask(2);
  x.pass(2'000ms);
  for (const std::size_t r : {0, 1, 2}) {
    BOOST_REQUIRE(x.failures[r]);
    BOOST_TEST(x.failures[r]->rank == 3u, x.failures[r]->text);
    BOOST_TEST(x.failures[r]->number == 2u);
  }
}

// A member refuses a piece before it knows the other members. It tells them as soon as it does.
BOOST_AUTO_TEST_CASE(a_failure_before_the_members_meet) {
  three_and_a_stopped_one x{all_reduce_schedule::one_shot};
  auto how = x.how;
  how.rank = 3;
  how.schedule = all_reduce_schedule::ring;
  const auto other = x.sys->spawn<collective_member>(how);
  auto header = whole_of(x.how, 1, element_kind::float32, 100);
  header.set_from(1);
  header.set_step(1);
  caf::anon_send(other, std::move(header), payload::floats(100));
  x.scheduler->run();
  meet_members all;
  for (const auto& member : x.members)
    all.peers.emplace_back(member);
  all.peers.emplace_back();
  caf::anon_send(other, std::move(all));
  x.scheduler->run();
  x.ask(0);
  BOOST_REQUIRE(x.failures[0]);
  BOOST_TEST((x.failures[0]->code == errc::malformed));
  BOOST_TEST(x.failures[0]->rank == 1u);
  caf::anon_send_exit(other, caf::exit_reason::user_shutdown);
  x.scheduler->run();
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
