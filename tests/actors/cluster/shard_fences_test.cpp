// Tests of a shard that fences off a lost worker, and of gradients that wait for their update.

#include "tests/actors/cluster/shard_fixture.hpp"

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(shard_fences, shard_fixture)

BOOST_AUTO_TEST_CASE(a_worker_that_vanishes_between_push_and_commit) {
  ask(push_of(1), gradient(1));
  const auto first = fence();
  BOOST_TEST(first.decided().applied() == 0U);
  BOOST_TEST(!first.has_last());
  BOOST_TEST(ask(commit_header(1)).outcome() == proto::LOST);
  // The second fence names no gradient. So no other shard has applied this gradient, and this shard
  // drops it.
  BOOST_TEST(fence(proto::Commit{}).decided().applied() == 0U);
  BOOST_TEST(version() == 0U);
}

BOOST_AUTO_TEST_CASE(the_last_gradient_of_a_vanished_worker_is_told) {
  ask(push_of(1), gradient(1));
  ask(commit_header(1));
  ask(push_of(2), gradient(1));
  const auto answer = fence();
  BOOST_TEST(answer.decided().applied() == 1U);
  BOOST_TEST(answer.last().id().sequence() == 1U);
  // The fence names a gradient that this shard has already applied. The shard does not apply this
  // gradient twice, and drops all newer ones.
  BOOST_TEST(fence(answer.last()).decided().applied() == 1U);
  BOOST_TEST(version() == 1U);
}

// The worker committed its gradient at another shard, but crashed before it could commit at this
// shard. The fence names this gradient, and this shard applies it, too.
BOOST_FIXTURE_TEST_CASE(what_another_shard_has_taken_is_taken_here, two_asynchronous) {
  BOOST_TEST(admit(1, 0).outcome() == proto::ACCEPTED);
  ask(push_of(1, 0), gradient(1));
  const auto before = versions->newest().data;
  BOOST_TEST(!fence().has_last());
  BOOST_TEST(version() == 0U);
  // The worker is still alive. Its commit is refused, but the coordinator may still apply it.
  BOOST_TEST(ask(commit_header(1, 0)).outcome() == proto::LOST);
  const auto answer = fence(commit_header(1, 0));
  BOOST_TEST(answer.decided().applied() == 1U);
  BOOST_TEST(answer.decided().lost() == 0U);
  BOOST_TEST(answer.decided().sequence() == 1U);
  BOOST_TEST(version() == 1U);
  BOOST_TEST(versions->newest().data.as_floats()[0] != before.as_floats()[0]);
  // The same fence a second time changes nothing.
  BOOST_TEST(fence(commit_header(1, 0)).decided().applied() == 1U);
  BOOST_TEST(version() == 1U);
  // This gradient raises the version like any other. So the staleness of the next gradient is 1.
  BOOST_TEST(admit(1, 1).staleness() == 1U);
}

// The last gradient of a lost worker waits for a free slot, behind a gradient of another worker.
// The fence is answered when both are decided. Otherwise, the run would end with wrong counts.
BOOST_FIXTURE_TEST_CASE(a_fence_waits_for_every_gradient_of_the_worker, two_asynchronous) {
  std::uint64_t sequence = 0;
  auto held = hold_all_slots(sequence);
  caf::scoped_actor self{*system};
  ask(push_of(1, 1), gradient(0));
  auto other = self->request(shard, 10s, commit_header(1, 1));
  ask(push_of(++sequence), gradient(64));
  caf::scoped_actor lost{*system};
  lost->send(shard, commit_header(sequence));
  auto order = fence_order();
  *order.mutable_last() = commit_header(sequence);
  auto fenced = self->request(shard, 10s, order);
  // When the shard answers this message, it has read the fence.
  BOOST_TEST((refusal(push_header(0, 1), gradient(0)) == errc::old_view));
  held.clear();
  other.receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
                [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  fenced.receive([&](const proto::Fenced& x) { BOOST_TEST(x.decided().applied() == sequence); },
                 [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  // The moment of the lost worker is forgotten after its last gradient. Only the other worker's
  // moment is left.
  BOOST_TEST(policy->moment(version()).as_floats()[0] == 0.0F);
}

// The worker pushes and commits again while its gradient waits for a free slot.
BOOST_FIXTURE_TEST_CASE(a_gradient_that_waits_is_applied_once, two_asynchronous) {
  std::uint64_t sequence = 0;
  auto held = hold_all_slots(sequence);
  caf::scoped_actor self{*system};
  ask(push_of(++sequence), gradient(0));
  auto answer = self->request(shard, 10s, commit_header(sequence));
  BOOST_TEST(ask(push_of(sequence), gradient(0)).outcome() == proto::ACCEPTED);
  held.clear();
  answer.receive([](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
                 [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  fence();
  BOOST_TEST(fence(commit_header(sequence)).decided().applied() == sequence);
  BOOST_TEST(version() == sequence);
}

BOOST_AUTO_TEST_SUITE_END()
