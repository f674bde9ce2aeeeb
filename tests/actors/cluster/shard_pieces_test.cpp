// Tests of a shard that gets gradients in pieces, and sends the new weights in pieces.

#include "tests/actors/cluster/shard_fixture.hpp"

#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(shard_pieces, shard_fixture)

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
    header.set_view(view_of_shard);
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
    header.set_view(view_of_shard);
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
