// Tests a parameter shard, and its reader (the actor that answers pulls), with single messages.

#include "tests/actors/cluster/shard_fixture.hpp"
#include "tests/support/allocations.hpp"

#include <cmath>
#include <limits>
#include <thread>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(shard_messages, shard_fixture)

BOOST_AUTO_TEST_CASE(another_view_is_refused) {
  BOOST_TEST((refusal(push_header(0, 1), gradient(1)) == errc::old_view));
  auto old = commit_header(1);
  old.set_view(0);
  BOOST_TEST((refusal(old) == errc::old_view));
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(2);
  self->request(reader, 10s, pull)
    .receive([](const proto::Weights&,
                const payload&) { BOOST_ERROR("a pull of another view was served"); },
             [](const caf::error& error) {
               BOOST_TEST((code_of(error) == errc::old_view));
               BOOST_TEST(explain(error).find("view 2") != std::string::npos);
             });
  BOOST_TEST(version() == 0U);
}

// Rows 0 and 2 of a table of 4 rows and 3 columns that begins at element 6, and all elements
// outside the table.
proto::Selection two_rows() {
  proto::Selection result;
  auto& table = *result.add_tensor();
  table.set_begin(6);
  table.set_end(18);
  table.set_width(3);
  table.add_row(0);
  table.add_row(2);
  return result;
}

BOOST_AUTO_TEST_CASE(rows_that_are_not_sent_are_zero) {
  auto header = push_of(1);
  *header.mutable_rows() = two_rows();
  const std::vector<float> before(versions->published().begin(), versions->published().end());
  BOOST_TEST((refusal(header, payload::floats(versions->elements() - 5)) == errc::malformed));
  auto some = payload::floats(versions->elements() - 6);
  std::ranges::fill(some.as_mutable_floats(), 64.0F);
  BOOST_TEST(ask(header, some).outcome() == proto::ACCEPTED);
  BOOST_TEST(ask(commit_header(1)).outcome() == proto::APPLIED);
  const auto after = versions->newest();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool sent = i < 9 || (i >= 12 && i < 15) || i >= 18;
    BOOST_TEST_REQUIRE((after.data.as_floats()[i] != before[i]) == sent, i);
  }
}

BOOST_AUTO_TEST_CASE(rows_that_cannot_be_are_refused) {
  auto header = push_of(1);
  *header.mutable_rows() = two_rows();
  header.mutable_rows()->mutable_tensor(0)->add_row(4);
  BOOST_TEST((refusal(header, gradient(1)) == errc::malformed));
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(view_of_shard);
  *pull.mutable_rows() = header.rows();
  self->request(reader, 10s, pull)
    .receive([](const proto::Weights&, const payload&) { BOOST_ERROR("it was served"); },
             [](const caf::error& error) { BOOST_TEST((code_of(error) == errc::malformed)); });
}

BOOST_AUTO_TEST_CASE(rows_are_pulled) {
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(view_of_shard);
  *pull.mutable_rows() = two_rows();
  const auto all = versions->newest().data;
  self->request(reader, 10s, pull)
    .receive(
      [&](const proto::Weights& header, const payload& values) {
        BOOST_TEST(header.count() == versions->elements());
        BOOST_REQUIRE(values.size() == all.size() - 6 * sizeof(float));
        for (std::size_t i = 0; i < values.as_floats().size(); ++i) {
          const auto from = i < 9 ? i : i < 12 ? i + 3 : i + 6;
          BOOST_TEST_REQUIRE(values.as_floats()[i] == all.as_floats()[from], i);
        }
      },
      [](const caf::error& error) { BOOST_ERROR(explain(error)); });
}

BOOST_AUTO_TEST_CASE(a_gradient_of_the_wrong_size_is_refused) {
  BOOST_TEST((refusal(push_of(1), payload::floats(3)) == errc::malformed));
  BOOST_TEST((refusal(push_of(1), payload{}) == errc::malformed));
  ask(push_of(1), gradient(1));
  BOOST_TEST(ask(commit_header(1)).outcome() == proto::APPLIED);
}

// The shard refuses gradients of an unknown worker, because it would keep them forever. It refuses
// numbers that are not finite, because they would spoil the weights.
BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused_and_the_shard_goes_on) {
  BOOST_TEST((refusal(push_of(1, 7), gradient(1)) == errc::malformed));
  auto stranger = push_of(1);
  stranger.mutable_id()->set_incarnation(12);
  BOOST_TEST((refusal(stranger, gradient(1)) == errc::malformed));
  BOOST_TEST((refusal(push_of(0), gradient(1)) == errc::malformed), "they count from 1");
  ask(push_of(1), gradient(1));
  const auto refused = [&](auto change) {
    auto commit = commit_header(1);
    change(commit);
    return refusal(commit) == errc::malformed;
  };
  constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(refused([](auto& x) { x.set_samples(1'000'000); }));
  BOOST_TEST(refused([](auto& x) { x.set_gradient_norm(nan); }));
  BOOST_TEST(refused([](auto& x) { x.set_loss(nan); }));
  BOOST_TEST(refused([](auto& x) { x.set_scale(2); }));
  BOOST_TEST(refused([](auto& x) { x.mutable_id()->set_worker(7); }));
  proto::Admit admit;
  admit.set_view(view_of_shard);
  *admit.mutable_id() = push_of(1, 7).id();
  BOOST_TEST((refusal(admit) == errc::malformed));
  proto::Fence fence_off;
  fence_off.set_view(view_of_shard);
  fence_off.set_incarnation(11);
  *fence_off.mutable_last() = commit_header(1, 7);
  BOOST_TEST((refusal<proto::Fenced>(fence_off) == errc::malformed));
  proto::PartialNorm norm;
  norm.set_view(view_of_shard);
  norm.set_squares(-1);
  BOOST_TEST((refusal<proto::Ack>(norm) == errc::malformed));
  BOOST_TEST(report().decided_size() == 0);
  BOOST_TEST(ask(commit_header(1)).outcome() == proto::APPLIED);
}

BOOST_AUTO_TEST_CASE(nothing_takes_effect_before_the_commit) {
  const auto before = versions->newest();
  BOOST_TEST(ask(push_of(1), gradient(1)).outcome() == proto::ACCEPTED);
  BOOST_TEST(version() == 0U);
  BOOST_TEST(report().decided_size() == 0);
  BOOST_TEST(ask(commit_header(1)).outcome() == proto::APPLIED);
  BOOST_TEST(version() == 1U);
  BOOST_TEST(versions->newest().data.as_floats()[0] != before.data.as_floats()[0]);
  BOOST_TEST(report().samples() == 64U);
}

BOOST_AUTO_TEST_CASE(repetitions_are_applied_once) {
  for (int i = 0; i < 3; ++i)
    ask(push_of(1), gradient(1));
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask(commit_header(1));
    BOOST_TEST(answer.outcome() == proto::APPLIED);
    BOOST_TEST(answer.duplicate() == (i > 0));
  }
  BOOST_TEST(ask(push_of(1), gradient(1)).duplicate(), "a push that comes late");
  BOOST_TEST(version() == 1U);
  BOOST_TEST(report().duplicates() == 3U);
}

BOOST_AUTO_TEST_CASE(a_commit_that_overtakes_its_push_waits_for_it) {
  caf::scoped_actor other{*system};
  auto answer = other->request(shard, 10s, commit_header(1));
  auto again = commit_header(1);
  again.set_again(true);
  BOOST_TEST(ask(again).outcome() == proto::NOT_STAGED);
  BOOST_TEST(version() == 0U);
  ask(push_of(1), gradient(1));
  std::move(answer).receive(
    [](const proto::Pushed& x) { BOOST_TEST(x.outcome() == proto::APPLIED); },
    [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  BOOST_TEST(version() == 1U);
}

// A commit that contains its gradient has the same effect as a push and then a commit.
BOOST_AUTO_TEST_CASE(a_commit_with_its_gradient) {
  shard_fixture apart;
  apart.ask(apart.push_of(1), apart.gradient(64));
  BOOST_TEST(apart.ask(apart.commit_header(1)).outcome() == proto::APPLIED);

  BOOST_TEST((refusal(commit_header(1), payload::floats(3)) == errc::malformed));
  auto old = commit_header(1);
  old.set_view(0);
  BOOST_TEST((refusal(old, gradient(64)) == errc::old_view));
  BOOST_TEST((refusal(commit_header(1, 7), gradient(64)) == errc::malformed));
  BOOST_TEST(version() == 0U);
  BOOST_TEST(ask(commit_header(1), gradient(64)).outcome() == proto::APPLIED);
  BOOST_TEST(version() == 1U);
  BOOST_TEST(std::ranges::equal(versions->published(), apart.versions->published()));

  auto again = commit_header(1);
  again.set_again(true);
  for (const auto& answer :
       {ask(commit_header(1), gradient(64)), ask(again), ask(push_of(1), gradient(64))}) {
    BOOST_TEST(answer.outcome() == proto::APPLIED);
    BOOST_TEST(answer.duplicate());
  }
  BOOST_TEST(version() == 1U);
  BOOST_TEST(report().duplicates() == 3U);
}

BOOST_AUTO_TEST_CASE(a_commit_with_its_gradient_in_step) {
  shard_fixture two{true, 2};
  BOOST_TEST(two.ask(two.commit_header(1, 0), two.gradient(64)).outcome() == proto::ACCEPTED);
  BOOST_TEST(two.ask(two.commit_header(1, 0), two.gradient(64)).outcome() == proto::ACCEPTED);
  BOOST_TEST(two.version() == 0U);
  two.ask(two.push_of(1, 1), two.gradient(64));
  BOOST_TEST(two.ask(two.commit_header(1, 1)).outcome() == proto::ACCEPTED);
  BOOST_TEST(two.version() == 1U);
  BOOST_TEST(two.report().duplicates() == 0U);
}

BOOST_AUTO_TEST_CASE(a_quarantined_gradient_leaves_no_trace) {
  ask(push_of(1), gradient(std::numeric_limits<float>::quiet_NaN()));
  auto bad = commit_header(1);
  bad.set_quarantine(true);
  BOOST_TEST(ask(bad).outcome() == proto::QUARANTINED);
  BOOST_TEST(ask(bad).duplicate());
  BOOST_TEST(version() == 0U);
  BOOST_TEST(report().quarantined_samples() == 64U);
  BOOST_TEST(report().decided(0).quarantined() == 1U);
  ask(push_of(2), gradient(1));
  BOOST_TEST(ask(commit_header(2)).outcome() == proto::APPLIED);
  BOOST_TEST(std::isfinite(versions->newest().data.as_floats()[0]));
}

// A gradient that is not finite has no effect, so it must not raise the version. Otherwise, later
// gradients would look too stale and be rejected.
BOOST_FIXTURE_TEST_CASE(a_quarantined_gradient_makes_no_other_stale, two_asynchronous) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    BOOST_TEST(admit(i, 0).staleness() == 0U);
    auto bad = commit_header(i);
    bad.set_quarantine(true);
    BOOST_TEST(ask(bad).outcome() == proto::QUARANTINED);
    BOOST_TEST(ask(bad).duplicate());
  }
  BOOST_TEST(admit(4, 0).staleness() == 0U);
  BOOST_TEST(admit(1, 1).staleness() == 1U);
}

// The learning rate depends on the samples that were processed, also on those of a gradient that is
// not finite. A run that continues from a checkpoint counts them, too.
BOOST_AUTO_TEST_CASE(a_quarantined_gradient_advances_the_schedule) {
  const auto weights_after = [](bool restored) {
    shard_fixture x{
      false, 1, false, {"learning_rate={base: 0.1 step {every_epochs: 1 factor: 0.5}}"}};
    auto bad = x.commit_header(1);
    bad.set_quarantine(true);
    if (restored) {
      proto::Restore order;
      order.set_view(view_of_shard);
      order.set_samples(64);
      const auto initial = x.gradient(0);
      caf::scoped_actor self{*x.system};
      self->request(x.shard, 10s, order, initial)
        .receive([](const proto::Ack&) {},
                 [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    } else {
      BOOST_TEST(x.ask(bad).outcome() == proto::QUARANTINED);
    }
    const std::vector<float> before(x.versions->published().begin(), x.versions->published().end());
    x.ask(x.push_of(2), x.gradient(64));
    x.ask(x.commit_header(2));
    BOOST_TEST(x.report().samples() == 64U);
    return x.versions->newest().data.as_floats()[0] - before[0];
  };
  BOOST_TEST(std::abs(weights_after(false) - weights_after(true)) < 1e-7F);
}

BOOST_AUTO_TEST_CASE(counters_beyond_32_bits) {
  const auto far = (std::uint64_t{1} << 32) + 5;
  for (const auto sequence : {far, far + 1, far + 70}) {
    ask(push_of(sequence), gradient(1));
    BOOST_TEST(ask(commit_header(sequence)).outcome() == proto::APPLIED);
    BOOST_TEST(ask(commit_header(sequence)).duplicate());
  }
  BOOST_TEST(report().decided(0).sequence() == far + 70);
}

BOOST_AUTO_TEST_CASE(a_pull_copies_nothing) {
  // The shard has a million parameters, so that a copy would be a large allocation.
  const range where{0, 1'000'000};
  auto big = std::make_shared<version_pool>(where.size(), 3);
  auto front = system->spawn<reader_front>(view_of_shard, where, big);
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(view_of_shard);
  const auto before = large_allocations();
  for (int i = 0; i < 100; ++i)
    self->request(front, 10s, pull)
      .receive(
        [&](const proto::Weights& header, const payload& data) {
          BOOST_TEST(header.count() == where.size());
          BOOST_TEST((data.data() == big->newest().data.data()));
        },
        [](const caf::error& error) { BOOST_ERROR(explain(error)); });
  BOOST_TEST(large_allocations() - before == 0U);
  caf::anon_send_exit(front, caf::exit_reason::user_shutdown);
}

// A worker sends the pull for its next step together with its commit. The pull is answered after
// the decision about the committed gradient.
BOOST_AUTO_TEST_CASE(a_pull_waits_for_the_decision_about_a_gradient) {
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(view_of_shard);
  pull.set_worker(0);
  const auto version_of = [&](auto& pulled) {
    std::optional<std::uint64_t> result;
    pulled.receive([&](const proto::Weights& header, const payload&) { result = header.version(); },
                   [](const caf::error& error) { BOOST_TEST_MESSAGE(explain(error)); });
    return result;
  };
  for (const auto sequence : {1U, 2U}) {
    pull.set_after(sequence);
    auto next = self->request(reader, 10s, pull);
    pull.clear_after();
    auto newest = self->request(reader, 10s, pull);
    BOOST_TEST(version_of(newest).value() == sequence - 1);
    ask(push_header(view_of_shard, sequence), gradient(1));
    ask(commit_header(sequence));
    BOOST_TEST(version_of(next).value() == sequence);
  }
  // This pull arrives after the decision, so it is answered at once.
  pull.set_after(2);
  auto late = self->request(reader, 10s, pull);
  BOOST_TEST(version_of(late).value() == 2U);
  // A decision to leave out a gradient that is not finite also ends the wait.
  pull.set_after(3);
  auto next = self->request(reader, 10s, pull);
  auto commit = commit_header(3);
  commit.set_quarantine(true);
  ask(commit);
  BOOST_TEST(version_of(next).value() == 2U);
  // If a pull is repeated, both pulls are answered, because requests may arrive in another order.
  pull.set_after(4);
  auto first = self->request(reader, 10s, pull);
  auto again = self->request(reader, 10s, pull);
  ask(push_header(view_of_shard, 4), gradient(1));
  ask(commit_header(4));
  BOOST_TEST(version_of(first).value() == 3U);
  BOOST_TEST(version_of(again).value() == 3U);
  // When the reader ends, it answers the pulls that still wait, with an error.
  pull.set_after(5);
  auto last = self->request(reader, 10s, pull);
  caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  BOOST_TEST(!version_of(last));
}

// A reader may use a version for any time. If all slots of the pool are in use, the shard waits
// before it makes a new version, and continues when a version is given back.
BOOST_AUTO_TEST_CASE(a_writer_waits_for_readers) {
  std::uint64_t sequence = 0;
  auto held = hold_all_slots(sequence);
  {
    caf::scoped_actor impatient{*system};
    ask(push_of(++sequence), gradient(0));
    impatient->request(shard, 100ms, commit_header(sequence))
      .receive([](const proto::Pushed&) { BOOST_ERROR("a version that is held was overwritten"); },
               [](const caf::error& error) { BOOST_TEST((error == caf::sec::request_timeout)); });
  }
  const auto doing = [this] { return board->status(system->clock().now()).doing(); };
  for (int i = 0; i < 1000 && doing() != proto::TaskStatus::WAITING_FOR_READERS; ++i)
    std::this_thread::sleep_for(10ms);
  BOOST_TEST(doing() == proto::TaskStatus::WAITING_FOR_READERS);
  held.erase(held.begin());
  // A slot is free, so the repeated request is answered. The gradient is applied only once.
  auto again = commit_header(sequence);
  again.set_again(true);
  BOOST_TEST(ask(again).outcome() == proto::APPLIED);
  BOOST_TEST(versions->newest().version == 4U);
  BOOST_TEST(doing() == proto::TaskStatus::WAITING_FOR_GRADIENTS);
}

struct two_in_step : shard_fixture {
  two_in_step() : shard_fixture(true, 2) {}
};

BOOST_FIXTURE_TEST_CASE(in_step_all_commit, two_in_step) {
  ask(push_of(1, 0), gradient(1));
  BOOST_TEST(ask(commit_header(1, 0)).outcome() == proto::ACCEPTED);
  BOOST_TEST(ask(commit_header(1, 0)).outcome() == proto::ACCEPTED, "a repetition");
  ask(push_of(1, 1), gradient(1));
  BOOST_TEST(version() == 0U);
  auto wrong = commit_header(1, 1);
  wrong.set_step(7);
  BOOST_TEST((refusal(wrong) == errc::malformed));
  BOOST_TEST((refusal(commit_header(1, 9)) == errc::malformed), "not a worker of this view");
  BOOST_TEST(ask(commit_header(1, 1)).outcome() == proto::ACCEPTED);
  BOOST_TEST(version() == 1U);
  BOOST_TEST(ask(commit_header(1, 0)).outcome() == proto::APPLIED);
  BOOST_TEST(report().samples() == 128U);
}

BOOST_FIXTURE_TEST_CASE(in_step_a_bad_gradient_counts_as_committed, two_in_step) {
  ask(push_of(1, 0), gradient(std::numeric_limits<float>::infinity()));
  auto bad = commit_header(1, 0);
  bad.set_quarantine(true);
  BOOST_TEST(ask(bad).outcome() == proto::ACCEPTED);
  ask(push_of(1, 1), gradient(1));
  ask(commit_header(1, 1));
  BOOST_TEST(version() == 1U);
  BOOST_TEST(ask(bad).outcome() == proto::QUARANTINED);
  BOOST_TEST(ask(commit_header(1, 1)).outcome() == proto::APPLIED);
  BOOST_TEST(report().samples() == 64U);
  BOOST_TEST(report().quarantined_samples() == 64U);
  BOOST_TEST(std::isfinite(versions->newest().data.as_floats()[0]));
}

BOOST_AUTO_TEST_SUITE_END()
