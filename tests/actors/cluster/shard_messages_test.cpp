// Tests a parameter shard, and its reader (the actor that answers pulls), with single messages.

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"
#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t current_view = 1;

/// A shard that has all parameters and serves this number of workers. All workers have the
/// incarnation (start number) 11.
struct shard_fixture {
  explicit shard_fixture(bool in_step = false, std::uint32_t workers = 1, bool in_pieces = false,
                         std::vector<std::string> changes = {}) {
    configure(config);
    system.emplace(config);
    changes.insert(changes.begin(), {"data.digits={train: 64 test: 20}", "data.batch=64"});
    const auto job = example_job("digits_mlp", changes);
    context = make_job_context(job, shape_of(*build_data(job).train));
    shard_options options;
    options.view.number = current_view;
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < workers; ++i) {
      options.view.members.push_back({{job_kind::worker, i}, 11, ""});
      indices.push_back(i);
    }
    options.where = context->shard(0, 1);
    if (in_step)
      policy = std::make_shared<sync_policy>(options.where, options.index, indices);
    else
      policy = std::make_shared<async_policy>(context, options.where, 0, workers, nullptr);
    options.policy = policy;
    options.in_pieces = in_pieces;
    board = options.board;
    versions = make_versions(*context, options.where, 0);
    const auto front = system->spawn<reader_front>(current_view, options.where, versions);
    reader = front;
    options.reader = front;
    shard = system->spawn<parameter_shard>(context, options, versions);
  }

  ~shard_fixture() {
    caf::anon_send_exit(shard, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  }

  proto::Push push_header(std::uint64_t view, std::uint64_t sequence) const {
    proto::Push result;
    result.set_view(view);
    result.mutable_id()->set_incarnation(11);
    result.mutable_id()->set_sequence(sequence);
    result.set_samples(64);
    return result;
  }

  proto::Commit commit_header(std::uint64_t sequence, std::uint32_t worker = 0) const {
    proto::Commit result;
    result.set_view(current_view);
    *result.mutable_id() = push_header(current_view, sequence).id();
    result.mutable_id()->set_worker(worker);
    result.set_samples(64);
    return result;
  }

  payload gradient(float value) const {
    auto result = payload::floats(versions->elements());
    std::ranges::fill(result.as_mutable_floats(), value);
    return result;
  }

  /// The answer to a request. Fails if there is none within 10 s.
  template <class... In>
  proto::Pushed ask(const In&... in) {
    caf::scoped_actor self{*system};
    proto::Pushed result;
    self->request(shard, 10s, in...)
      .receive([&](const proto::Pushed& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  template <class Answer = proto::Pushed, class... In>
  errc refusal(const In&... in) {
    caf::scoped_actor self{*system};
    auto result = errc::none;
    self->request(shard, 10s, in...)
      .receive([&](const Answer&) { BOOST_ERROR("taken"); },
               [&](const caf::error& error) { result = code_of(error); });
    return result;
  }

  proto::Fence fence_order() const {
    proto::Fence result;
    result.set_view(current_view);
    result.set_incarnation(11);
    return result;
  }

  /// Plays the coordinator after it has lost worker 0: sends a fence, after which the shard accepts
  /// no new gradient of this worker. Without `last`, this is the first fence. With `last`, it is
  /// the second fence, which names the newest gradient that must still be applied.
  proto::Fenced fence(const std::optional<proto::Commit>& last = std::nullopt) {
    caf::scoped_actor self{*system};
    auto order = fence_order();
    if (last)
      *order.mutable_last() = *last;
    proto::Fenced result;
    self->request(shard, 10s, order)
      .receive([&](const proto::Fenced& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  proto::Report report() {
    caf::scoped_actor self{*system};
    proto::ReportRequest question;
    question.set_view(current_view);
    proto::Report result;
    self->request(shard, 10s, question)
      .receive([&](const proto::Report& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  proto::Push push_of(std::uint64_t sequence, std::uint32_t worker = 0) const {
    auto result = push_header(current_view, sequence);
    result.mutable_id()->set_worker(worker);
    return result;
  }

  /// Makes updates with gradients of worker 0, and holds each version, until all slots are in use.
  /// From then on, commits wait. Raises `sequence` to that of the last gradient.
  std::vector<version_pool::snapshot> hold_all_slots(std::uint64_t& sequence) {
    std::vector<version_pool::snapshot> held{versions->newest()};
    while (held.size() < 4) {
      ask(push_of(++sequence), gradient(0));
      BOOST_TEST(ask(commit_header(sequence)).outcome() == proto::APPLIED);
      held.push_back(versions->newest());
    }
    return held;
  }

  std::uint64_t version() const { return versions->newest().version; }

  caf::actor_system_config config;
  std::optional<caf::actor_system> system;
  std::shared_ptr<const job_context> context;
  std::shared_ptr<activity_board> board;
  std::shared_ptr<version_pool> versions;
  std::shared_ptr<shard_policy> policy;
  shard_actor shard;
  reader_actor reader;
};

} // namespace

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
  pull.set_view(current_view);
  *pull.mutable_rows() = header.rows();
  self->request(reader, 10s, pull)
    .receive([](const proto::Weights&, const payload&) { BOOST_ERROR("it was served"); },
             [](const caf::error& error) { BOOST_TEST((code_of(error) == errc::malformed)); });
}

BOOST_AUTO_TEST_CASE(rows_are_pulled) {
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(current_view);
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
  admit.set_view(current_view);
  *admit.mutable_id() = push_of(1, 7).id();
  BOOST_TEST((refusal(admit) == errc::malformed));
  proto::Fence fence_off;
  fence_off.set_view(current_view);
  fence_off.set_incarnation(11);
  *fence_off.mutable_last() = commit_header(1, 7);
  BOOST_TEST((refusal<proto::Fenced>(fence_off) == errc::malformed));
  proto::PartialNorm norm;
  norm.set_view(current_view);
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

struct two_asynchronous : shard_fixture {
  two_asynchronous() : shard_fixture(false, 2) {}

  proto::Pushed admit(std::uint64_t sequence, std::uint32_t worker) {
    proto::Admit question;
    question.set_view(current_view);
    *question.mutable_id() = push_of(sequence, worker).id();
    return ask(question);
  }
};

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
      order.set_view(current_view);
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
  auto front = system->spawn<reader_front>(current_view, where, big);
  caf::scoped_actor self{*system};
  proto::Pull pull;
  pull.set_view(current_view);
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
  pull.set_view(current_view);
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
    ask(push_header(current_view, sequence), gradient(1));
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
  ask(push_header(current_view, 4), gradient(1));
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

/// Two workers that push their gradients in pieces, and receive the messages of the shard.
struct two_in_pieces : shard_fixture {
  two_in_pieces() : shard_fixture(true, 2, true), cut(range_pieces::cut(context->shard(0, 1))) {
    for (std::uint32_t i = 0; i < 2; ++i)
      workers.push_back(std::make_unique<caf::scoped_actor>(*system));
    step_listeners listeners;
    for (auto& x : workers)
      listeners.actors.push_back(caf::actor_cast<step_listener>(caf::actor{*x}));
    caf::anon_send(caf::actor_cast<shard_shell>(shard), listeners);
  }

  void push_piece(std::uint32_t worker, std::size_t piece, const payload& all,
                  std::uint64_t sequence = 1) {
    proto::PushPiece header;
    header.set_view(current_view);
    *header.mutable_id() = push_of(sequence, worker).id();
    header.set_samples(64);
    header.set_begin(cut[piece].begin);
    caf::anon_send(caf::actor_cast<piece_taker>(shard), header,
                   all.slice_floats(cut[piece].begin, cut[piece].size()));
  }

  proto::Commit commit_of(std::uint32_t worker, std::uint64_t sequence = 1) const {
    auto result = commit_header(sequence, worker);
    result.set_step(sequence - 1);
    return result;
  }

  /// The pieces of new weights that the shard has sent to a worker since the last call. Sets
  /// `advanced` to the version in the message that ends the step.
  std::vector<std::pair<proto::NewWeights, payload>> sent_to(std::size_t worker) {
    report(); // Returns after the shard has handled all earlier messages.
    std::vector<std::pair<proto::NewWeights, payload>> result;
    advanced = 0;
    auto& self = *workers[worker];
    while (self->has_next_message())
      self->receive(
        [&](const proto::NewWeights& x, const payload& values) {
          BOOST_TEST(advanced == 0U, "pieces come before the announcement");
          result.emplace_back(x, values);
        },
        [&](const proto::Advanced& x) { advanced = x.version(); });
    return result;
  }

  /// Both workers send a gradient and a commit: as a whole or in pieces.
  void step(std::uint64_t sequence, bool whole, float value) {
    for (std::uint32_t worker = 0; worker < 2; ++worker) {
      const auto x = gradient(value * (1 + static_cast<float>(worker)));
      if (whole)
        ask(push_of(sequence, worker), x);
      for (std::size_t i = 0; i < cut.count() && !whole; ++i)
        push_piece(worker, i, x, sequence);
      BOOST_TEST(ask(commit_of(worker, sequence)).outcome() == proto::ACCEPTED);
    }
    BOOST_TEST(version() == sequence);
  }

  std::vector<float> weights() const {
    const auto x = versions->newest().data;
    return {x.as_floats().begin(), x.as_floats().end()};
  }

  range_pieces cut;
  std::vector<std::unique_ptr<caf::scoped_actor>> workers;
  std::uint64_t advanced = 0;
};

BOOST_FIXTURE_TEST_CASE(weights_are_sent_while_gradients_arrive, two_in_pieces) {
  const auto last = cut.count() - 1;
  BOOST_TEST_REQUIRE(last > 2U);
  const auto before = weights();
  for (std::size_t i = 0; i <= last; ++i)
    push_piece(0, i, gradient(1));
  BOOST_TEST(ask(commit_of(0)).outcome() == proto::ACCEPTED);
  BOOST_TEST(sent_to(0).empty(), "the other worker's gradient is not there");
  std::vector<float> received(versions->elements(), -1.0F);
  const auto take = [&](const auto& sent) {
    for (auto& [x, values] : sent) {
      BOOST_TEST(x.version() == 1U);
      std::ranges::copy(values.as_floats(), received.begin() + static_cast<long>(x.begin()));
    }
  };
  for (std::size_t i = 0; i < last; ++i) {
    push_piece(1, i, gradient(1));
    const auto sent = sent_to(0);
    BOOST_TEST_REQUIRE(sent.size() == 1U);
    BOOST_TEST(sent[0].first.begin() == cut[i].begin);
    take(sent);
    BOOST_TEST(sent_to(1).size() == 1U);
  }
  // The shard has all pieces of both gradients, but one gradient is not committed.
  push_piece(1, last, gradient(1));
  BOOST_TEST(sent_to(0).empty());
  BOOST_TEST(version() == 0U);
  BOOST_TEST(report().decided_size() == 0);
  BOOST_TEST((weights() == before));
  BOOST_TEST(ask(commit_of(1)).outcome() == proto::ACCEPTED);
  const auto sent = sent_to(0);
  BOOST_TEST(sent.size() == 1U);
  BOOST_TEST(advanced == 1U);
  take(sent);
  BOOST_TEST(version() == 1U);
  BOOST_TEST((received == weights()));
  BOOST_TEST((weights() != before));
  BOOST_TEST(report().samples() == 128U);
}

// Two of three steps are in pieces. With a momentum, the weights equal those after whole steps, bit
// for bit.
BOOST_FIXTURE_TEST_CASE(steps_in_pieces_have_the_bits_of_whole_steps, two_in_pieces) {
  two_in_pieces other;
  for (std::uint64_t i = 1; i <= 6; ++i) {
    step(i, i % 3 == 0, static_cast<float>(i));
    other.step(i, true, static_cast<float>(i));
    BOOST_TEST((weights() == other.weights()), "step " << i);
    // Takes the messages out of the mailboxes, because each piece keeps a version of the weights in
    // memory.
    for (std::size_t worker = 0; worker < 2; ++worker) {
      sent_to(worker);
      other.sent_to(worker);
    }
  }
}

// A gradient is not finite, but the shard notices this only after it has sent some pieces of the
// next version. Afterwards, weights and optimizer state are as if this gradient had never been
// sent.
BOOST_FIXTURE_TEST_CASE(in_pieces_a_bad_gradient_adds_nothing, two_in_pieces) {
  two_in_pieces other;
  for (auto* x : {static_cast<two_in_pieces*>(this), &other})
    x->step(1, x == &other, 1);
  sent_to(0);
  auto bad = commit_of(1, 2);
  bad.set_quarantine(true);
  for (std::size_t i = 0; i < cut.count(); ++i) {
    push_piece(1, i, gradient(std::numeric_limits<float>::infinity()), 2);
    push_piece(0, i, gradient(1), 2);
  }
  BOOST_TEST(sent_to(0).size() == cut.count() - 1);
  ask(commit_of(0, 2));
  ask(bad);
  BOOST_TEST(sent_to(0).empty());
  BOOST_TEST(advanced == 2U);
  BOOST_TEST(report().quarantined_samples() == 64U);
  other.ask(other.push_of(2, 0), gradient(1));
  other.ask(other.commit_of(0, 2));
  other.ask(bad);
  BOOST_TEST((weights() == other.weights()));
  for (auto* x : {static_cast<two_in_pieces*>(this), &other})
    x->step(3, x == &other, 1);
  BOOST_TEST((weights() == other.weights()));
  BOOST_TEST(std::isfinite(weights()[0]));
}

// A worker crashes before it has sent all pieces of its gradient.
BOOST_FIXTURE_TEST_CASE(a_worker_that_vanishes_between_pieces, two_in_pieces) {
  const auto before = weights();
  for (std::size_t i = 0; i + 1 < cut.count(); ++i) {
    push_piece(0, i, gradient(1));
    push_piece(1, i, gradient(1));
  }
  BOOST_TEST(sent_to(1).size() == cut.count() - 1);
  BOOST_TEST(fence().decided().applied() == 0U);
  BOOST_TEST(fence(proto::Commit{}).decided().applied() == 0U);
  push_piece(0, cut.count() - 1, gradient(1));
  push_piece(1, cut.count() - 1, gradient(1));
  BOOST_TEST(ask(commit_of(0)).outcome() == proto::LOST);
  BOOST_TEST(ask(commit_of(1)).outcome() == proto::ACCEPTED);
  BOOST_TEST(sent_to(1).empty());
  BOOST_TEST(version() == 0U);
  BOOST_TEST((weights() == before));
}

BOOST_FIXTURE_TEST_CASE(pieces_that_do_not_fit_are_ignored, two_in_pieces) {
  const auto good = gradient(1);
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    for (std::size_t i = 1; i < cut.count(); ++i)
      push_piece(worker, i, good);
    proto::PushPiece header;
    header.set_view(current_view);
    *header.mutable_id() = push_of(1, worker).id();
    header.set_samples(64);
    header.set_begin(cut[0].begin);
    const auto to = caf::actor_cast<piece_taker>(shard);
    const auto piece = good.slice_floats(0, cut[0].size());
    caf::anon_send(to, header, payload{});
    caf::anon_send(to, header, good);
    caf::anon_send(to, header, good.slice_floats(0, cut[0].size() - 1));
    for (const auto change : {0, 1, 2, 3, 4}) {
      auto wrong = header;
      if (change == 0)
        wrong.set_view(2);
      else if (change == 1)
        wrong.set_begin(1);
      else if (change == 2)
        wrong.mutable_id()->set_worker(7);
      else if (change == 3)
        wrong.mutable_id()->set_incarnation(12);
      else
        wrong.set_samples(0);
      caf::anon_send(to, wrong, piece);
    }
  }
  auto again = commit_of(0);
  again.set_again(true);
  BOOST_TEST(ask(again).outcome() == proto::NOT_STAGED);
  BOOST_TEST(sent_to(0).size() == cut.count() - 1);
  // The workers send their gradients again as a whole.
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    ask(push_of(1, worker), good);
    BOOST_TEST(ask(commit_of(worker)).outcome() == proto::ACCEPTED);
  }
  BOOST_TEST(version() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
