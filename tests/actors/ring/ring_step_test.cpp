// Whole rings without actors: all ranks with their replicas, steps and reductions, connected by
// queues instead of links.

#include "actors/model/replica_state.hpp"
#include "actors/ring/ring_step.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(ring_step)

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A job with Adam and a constant learning rate. Each tensor is a bucket.
/// @param divided true if each rank holds only a part of the optimizer's state
std::shared_ptr<const job_context> context(double clip_norm = 0, bool divided = false) {
  auto job = digits_job();
  job.set_protocol(proto::RING);
  job.mutable_ring()->set_shard_optimizer(divided);
  job.mutable_optimizer()->set_kind(proto::ADAM);
  job.mutable_optimizer()->clear_momentum();
  job.mutable_optimizer()->set_clip_norm(static_cast<float>(clip_norm));
  job.mutable_learning_rate()->clear_step();
  job.mutable_runtime()->set_bucket_bytes(1);
  return make_job_context(job, {{.dims = {1, 4, 4}, .label_width = 10}, 100});
}

/// Jobs for three kinds of rings: a plain one, one with clipping, and one with a divided optimizer
/// state.
std::vector<std::shared_ptr<const job_context>> ways() {
  return {context(), context(0.5), context(0, true)};
}

/// What the worker of a rank computes in a step.
struct batch {
  std::uint64_t samples = 0;
  /// The gradient of all parameters.
  payload gradient;
  bool finite = true;
};

using batches = std::function<batch(std::size_t rank, std::uint64_t step)>;

batch good_batch(const job_context& job, std::size_t rank, std::uint64_t step) {
  const auto n = job.parameters().size();
  batch result{4 + rank, payload::floats(n)};
  std::ranges::transform(random_values(n, "gradient", 100 * step + rank),
                         result.gradient.as_mutable_floats().begin(),
                         [](double x) { return static_cast<float>(x); });
  return result;
}

/// The batch of a rank that has no data.
batch nothing(const job_context& job) {
  const auto n = job.parameters().size();
  batch result{0, payload::floats(n)};
  std::ranges::fill(result.gradient.as_mutable_floats(), 0.0F);
  return result;
}

/// All ranks of a ring. It is random what happens next. With `faults`, links deliver pieces in any
/// order, and some of them twice, even in a later step.
class ring {
public:
  ring(std::shared_ptr<const job_context> job, std::size_t ranks, std::uint64_t salt = 1,
       bool faults = false)
    : job_(std::move(job)), faults_(faults), random_(seed() + salt, "ring steps") {
    for (std::size_t r = 0; r < ranks; ++r)
      ranks_.push_back(std::make_unique<rank>(job_, place_of(r, ranks)));
  }

  ring_place place_of(std::size_t r, std::size_t ranks) const {
    ring_place result{r, ranks, 7, divides_state(*job_, ranks)};
    if (ranks > 1 && job_->job.ring().verify_every_steps() > 0)
      result.checked = check_elements(ranks, job_->buckets().size());
    result.adds_later = job_->rule.clip_norm == 0;
    return result;
  }

  /// Flips a bit of a weight on one rank, as broken memory would.
  void flip(std::size_t r, std::size_t bucket, std::size_t element) {
    auto& replica = ranks_[r]->replica;
    const auto weights = replica.published(bucket);
    const_cast<float&>(weights[element]) =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(weights[element]) ^ 1U << 12);
  }

  /// The difference between replicas that the ranks have found, or nullopt. All ranks must report
  /// the same.
  std::optional<replica_difference> difference() const {
    for (auto& x : ranks_) {
      const auto& here = x->step.difference();
      const auto& first = ranks_[0]->step.difference();
      BOOST_TEST_REQUIRE(here.has_value() == first.has_value());
      if (here) {
        BOOST_TEST(here->bucket == first->bucket);
        BOOST_TEST(here->ranks == first->ranks);
        BOOST_TEST(!x->step.outcome());
      }
    }
    return ranks_[0]->step.difference();
  }

  void train(std::uint64_t steps, const batches& of) {
    for (auto& x : ranks_)
      if (x->number < steps)
        begin(*x, of);
    for (;;) {
      std::vector<std::function<void()>> possible;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        list(r, possible);
      if (possible.empty())
        break;
      possible[random_.below(possible.size())]();
      for (auto& x : ranks_)
        if (x->under_way && x->step.outcome()) {
          end(*x);
          if (x->number < steps)
            begin(*x, of);
        }
    }
    for (auto& x : ranks_)
      BOOST_REQUIRE((x->number == steps || x->step.difference()));
  }

  const std::vector<ring_outcome>& outcomes(std::size_t r = 0) const { return ranks_[r]->outcomes; }
  std::size_t early() const { return early_; }
  std::size_t repeated() const { return repeated_; }
  const replica_store& replica(std::size_t r = 0) const { return ranks_[r]->replica; }

  /// A copy of the weights and of the optimizer's state. They must be equal on all ranks that hold
  /// them.
  std::vector<payload> everything() const {
    const range all{0, job_->parameters().size()};
    const auto result = ranks_[0]->replica.capture(all, true);
    for (auto& x : ranks_) {
      BOOST_TEST(same_bits(x->replica.weights(all).as_floats(), result[0].as_floats()));
      for (std::size_t b = 0; b < x->replica.buckets(); ++b)
        for (std::size_t slot = 1; slot < result.size(); ++slot) {
          const auto own = x->replica.own(b);
          const auto other = x->replica.state(slot - 1, own);
          auto here = result[slot].slice_floats(own.begin, own.size());
          if (divides_state(*job_, ranks_.size()))
            std::ranges::copy(other.as_floats(), here.as_mutable_floats().begin());
          BOOST_TEST(same_bits(other.as_floats(), here.as_floats()));
        }
      BOOST_TEST(x->replica.version() == ranks_[0]->replica.version());
    }
    return result;
  }

  /// Checks that repeated pieces were recognized.
  void check_repetitions() const {
    std::uint64_t found = 0;
    for (auto& x : ranks_)
      found += x->reductions.repeated();
    BOOST_TEST(found == repeated_);
  }

private:
  struct rank {
    rank(const std::shared_ptr<const job_context>& job, const ring_place& place)
      : replica(job, place.in_halves ? own_segment(place) : 0, place.in_halves ? place.ranks : 1),
        step(job, replica, place), reductions(place, sizes(*job)) {}

    static std::vector<std::size_t> sizes(const job_context& job) {
      std::vector<std::size_t> result;
      for (auto& x : job.buckets())
        result.push_back(x.size());
      return result;
    }

    replica_store replica;
    troupe::ring_step step;
    ring_reductions reductions;
    std::uint64_t number = 0;
    bool under_way = false;
    batch own;
    /// Number of buckets that this rank has contributed to the step. After the commit, it is one
    /// more.
    std::size_t worked = 0;
    std::deque<ring_contribution> to_reduce;
    std::deque<reduction> reduced;
    std::deque<ring_reductions::outgoing> link;
    std::vector<ring_outcome> outcomes;
  };

  void begin(rank& x, const batches& of) {
    const auto r = static_cast<std::size_t>(
      std::ranges::find_if(ranks_, [&](auto& y) { return y.get() == &x; }) - ranks_.begin());
    x.own = of(r, x.number);
    x.worked = 0;
    x.under_way = true;
    x.step.begin(x.number);
    std::vector<ring_contribution> start;
    x.step.compare(start);
    append(x, std::move(start));
    BOOST_TEST(!x.replica.newest().empty());
  }

  void end(rank& x) {
    x.under_way = false;
    BOOST_TEST(x.replica.version() == x.number);
    x.outcomes.push_back(*x.step.outcome());
    x.replica.publish(++x.number, x.outcomes.back().left_out);
  }

  void list(std::size_t r, std::vector<std::function<void()>>& possible) {
    auto& x = *ranks_[r];
    if (x.under_way && x.worked <= x.replica.buckets())
      possible.emplace_back([&] { work(x); });
    if (!x.to_reduce.empty())
      possible.emplace_back([&] {
        ring_reductions::effects result;
        x.reductions.contribute(take(x.to_reduce, 0), result);
        act(x, std::move(result));
      });
    if (!x.reduced.empty())
      possible.emplace_back([&] {
        std::vector<ring_contribution> start;
        x.step.reduced(take(x.reduced, 0), start);
        append(x, std::move(start));
      });
    if (!x.link.empty())
      possible.emplace_back([this, r] { deliver(r); });
  }

  void work(rank& x) {
    std::vector<ring_contribution> start;
    if (x.worked == x.replica.buckets()) {
      x.step.commit(x.own.finite, 0, start);
    } else {
      const auto where = x.replica.where(x.worked);
      x.step.contribute(where, x.own.samples,
                        x.own.gradient.slice_floats(where.begin, where.size()), start);
      BOOST_TEST(start.size() == 1u);
    }
    ++x.worked;
    append(x, std::move(start));
  }

  void deliver(std::size_t from) {
    const auto to = (from + 1) % ranks_.size();
    auto& link = ranks_[from]->link;
    const auto which = faults_ ? random_.below(link.size()) : 0;
    auto [id, piece] = faults_ && random_.below(4) == 0 ? link[which] : take(link, which);
    const bool again = !came_.insert({to, id, piece.segment, piece.chunk, piece.hop}).second;
    repeated_ += again ? 1 : 0;
    early_ += id.step > ranks_[to]->number ? 1 : 0;
    ring_reductions::effects result;
    const auto fate = ranks_[to]->reductions.receive(id, std::move(piece), result);
    BOOST_REQUIRE((fate == (again ? piece_fate::repeated : piece_fate::taken)));
    act(*ranks_[to], std::move(result));
  }

  static void append(rank& x, std::vector<ring_contribution> start) {
    for (auto& c : start)
      x.to_reduce.push_back(std::move(c));
  }

  static void act(rank& x, ring_reductions::effects result) {
    for (auto& piece : result.send)
      x.link.push_back(std::move(piece));
    if (result.done)
      x.reduced.push_back(std::move(*result.done));
  }

  template <class T>
  static T take(std::deque<T>& from, std::size_t which) {
    auto result = std::move(from[which]);
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(which));
    return result;
  }

  std::shared_ptr<const job_context> job_;
  bool faults_;
  random_stream random_;
  std::vector<std::unique_ptr<rank>> ranks_;
  std::set<std::tuple<std::size_t, reduction_id, std::uint32_t, std::uint32_t, std::uint32_t>>
    came_;
  std::size_t repeated_ = 0;
  std::size_t early_ = 0;
};

void check_same(const std::vector<payload>& a, const std::vector<payload>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_TEST(same_bits(a[i].as_floats(), b[i].as_floats()), "slot " << i);
}

std::vector<bool> only(std::size_t rank, std::size_t ranks) {
  std::vector<bool> result(ranks, false);
  result[rank] = true;
  return result;
}

std::uint64_t samples_of_all(std::size_t ranks) {
  return 4 * ranks + ranks * (ranks - 1) / 2;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_same_bits_in_any_order_of_events) {
  const auto job = context();
  const batches of = [&](std::size_t r, std::uint64_t step) { return good_batch(*job, r, step); };
  std::size_t repeated = 0;
  std::size_t early = 0;
  for (const std::size_t ranks : {1, 2, 3, 5}) {
    ring plain{job, ranks};
    plain.train(4, of);
    const auto expected = plain.everything();
    for (const auto& x : plain.outcomes()) {
      BOOST_TEST(x.samples == samples_of_all(ranks));
      BOOST_TEST(x.left_out == 0u);
      BOOST_TEST(std::ranges::count(x.quarantined, true) == 0);
    }
    for (std::uint64_t salt = 0; salt < tries(1'000); ++salt) {
      ring x{job, ranks, salt, true};
      x.train(4, of);
      check_same(x.everything(), expected);
      x.check_repetitions();
      repeated += x.repeated();
      early += x.early();
    }
  }
  BOOST_TEST(repeated > 1'000u, "only " << repeated << " pieces were repeated");
  BOOST_TEST(early > 100u, "only " << early << " pieces were ahead of their receiver");
}

// A ring with a divided optimizer state gets the same weights and the same state as a plain ring,
// also if there are more ranks than elements in a bucket.
BOOST_AUTO_TEST_CASE(a_divided_state_gives_the_same_bits) {
  const auto whole = context();
  const auto job = context(0, true);
  const batches of = [&](std::size_t r, std::uint64_t step) { return good_batch(*job, r, step); };
  for (const std::size_t ranks : {1, 2, 3, 5, 17}) {
    ring plain{whole, ranks};
    plain.train(4, of);
    const auto expected = plain.everything();
    for (std::uint64_t salt = 0; salt < 5; ++salt) {
      ring x{job, ranks, salt, true};
      x.train(4, of);
      check_same(x.everything(), expected);
      x.check_repetitions();
      for (std::size_t r = 0; r < ranks; ++r)
        for (const auto& outcome : x.outcomes(r))
          BOOST_TEST(outcome.samples == samples_of_all(ranks));
    }
  }
}

// One bit in the replica of one rank is flipped. The next comparison names this rank, and all ranks
// stop. With two ranks, it is unknown which of them is wrong, so both are named.
BOOST_AUTO_TEST_CASE(a_replica_that_differs_is_named) {
  for (const auto& way : ways())
    for (const std::size_t ranks : {2, 3, 5})
      for (const std::uint32_t every : {1U, 3U})
        BOOST_TEST_CONTEXT(ranks << " ranks, every " << every << " steps") {
          if (way->job.ring().shard_optimizer() && every > 1)
            continue; // with a divided state, the ranks exchange all weights in each step
          auto changed = way->job;
          changed.mutable_ring()->set_verify_every_steps(every);
          const auto job = make_job_context(changed, way->data);
          const batches of = [&](std::size_t r, std::uint64_t step) {
            return good_batch(*job, r, step);
          };
          for (std::uint64_t salt = 0; salt < 5; ++salt) {
            ring x{job, ranks, salt, true};
            x.train(4, of);
            BOOST_TEST_REQUIRE(!x.difference());
            const auto bad = salt % ranks;
            x.flip(bad, 1, 2);
            x.train(20, of);
            const auto found = x.difference();
            BOOST_TEST_REQUIRE(found.has_value());
            BOOST_TEST(found->bucket == 1U);
            BOOST_TEST(found->majority == (ranks > 2));
            BOOST_TEST(x.outcomes().size() == (every == 1 ? 4U : 6U));
            if (ranks > 2)
              BOOST_TEST(found->ranks == std::vector{bad});
            else
              BOOST_TEST(found->ranks == (std::vector<std::size_t>{0, 1}));
          }
        }
}

BOOST_AUTO_TEST_CASE(replicas_that_are_never_compared) {
  auto changed = context()->job;
  changed.mutable_ring()->set_verify_every_steps(0);
  const auto job = make_job_context(changed, context()->data);
  const batches of = [&](std::size_t r, std::uint64_t step) { return good_batch(*job, r, step); };
  ring x{job, 3};
  x.flip(1, 0, 0);
  x.train(4, of);
  BOOST_TEST(!x.difference());
}

// One element of the gradient of one rank is not finite. The result is as if this rank had no data
// in this step, with and without clipping, even if its worker does not notice the element.
BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_finite_is_left_out) {
  std::uint64_t salt = 0;
  for (const auto& job : ways()) {
    for (const std::size_t ranks : {1, 2, 3, 4})
      for (std::size_t bad = 0; bad < ranks; ++bad)
        for (const auto& bucket : job->buckets()) {
          const batches spoilt = [&](std::size_t r, std::uint64_t step) {
            auto result = good_batch(*job, r, step);
            if (r == bad && step == 1) {
              result.gradient.as_mutable_floats()[bucket.end - 1] = salt % 3 == 0 ? nan : 1 / 0.0F;
              result.finite = salt % 2 == 0;
            }
            return result;
          };
          const batches without = [&](std::size_t r, std::uint64_t step) {
            return r == bad && step == 1 ? nothing(*job) : good_batch(*job, r, step);
          };
          ring x{job, ranks, ++salt, true};
          x.train(3, spoilt);
          ring plain{job, ranks};
          plain.train(3, without);
          check_same(x.everything(), plain.everything());
          x.check_repetitions();
          for (std::size_t r = 0; r < ranks; ++r) {
            const auto& outcome = x.outcomes(r)[1];
            BOOST_TEST((outcome.quarantined == only(bad, ranks)));
            BOOST_TEST(outcome.left_out == 4 + bad);
            BOOST_TEST(outcome.samples == samples_of_all(ranks) - (4 + bad));
            BOOST_TEST((outcome.gradient_norm == plain.outcomes(r)[1].gradient_norm));
            BOOST_TEST(outcome.gradient_norm.has_value() == (job->rule.clip_norm > 0));
            for (const auto step : {0, 2})
              BOOST_TEST(x.outcomes(r)[step].samples == samples_of_all(ranks));
          }
        }
  }
}

BOOST_AUTO_TEST_CASE(several_ranks_and_all_ranks) {
  for (unsigned which = 1; which < 32; ++which) {
    const auto job = context(0, which > 15);
    const auto bad = [&](std::size_t r) { return (which >> r & 1) != 0; };
    ring x{job, 4, which, true};
    x.train(3, [&](std::size_t r, std::uint64_t step) {
      auto result = good_batch(*job, r, step);
      if (bad(r) && step == 1)
        result.gradient.as_mutable_floats()[r] = nan;
      return result;
    });
    ring plain{job, 4};
    plain.train(3, [&](std::size_t r, std::uint64_t step) {
      return bad(r) && step == 1 ? nothing(*job) : good_batch(*job, r, step);
    });
    check_same(x.everything(), plain.everything());
    for (std::size_t r = 0; r < 4; ++r)
      BOOST_TEST(x.outcomes()[1].quarantined[r] == bad(r));
    BOOST_TEST(x.outcomes()[1].samples + x.outcomes()[1].left_out == samples_of_all(4));
  }
}

// All gradients are finite, but their sum is infinite. No rank is blamed, and the weights do not
// change.
BOOST_AUTO_TEST_CASE(a_sum_that_is_not_finite) {
  for (const auto& job : ways()) {
    ring x{job, 3, 1, true};
    x.train(1, [&](std::size_t r, std::uint64_t) { return good_batch(*job, r, 0); });
    const auto before = x.everything();
    x.train(2, [&](std::size_t r, std::uint64_t) {
      auto result = good_batch(*job, r, 0);
      result.gradient.as_mutable_floats()[0] = r == 0 ? 0 : 3e38F;
      return result;
    });
    check_same(x.everything(), before);
    BOOST_TEST(x.replica().version() == 2u);
    const auto& outcome = x.outcomes(2)[1];
    BOOST_TEST(outcome.samples == 0u);
    BOOST_TEST(outcome.left_out == samples_of_all(3));
    BOOST_TEST(std::ranges::count(outcome.quarantined, true) == 3);
  }
}

BOOST_AUTO_TEST_CASE(nobody_has_samples) {
  for (const auto& job : ways()) {
    ring x{job, 3};
    x.train(1, [&](std::size_t r, std::uint64_t) { return good_batch(*job, r, 0); });
    const auto before = x.everything();
    x.train(2, [&](std::size_t, std::uint64_t) { return nothing(*job); });
    check_same(x.everything(), before);
    BOOST_TEST(x.outcomes()[1].samples == 0u);
    BOOST_TEST(std::ranges::count(x.outcomes()[1].quarantined, true) == 0);
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_belong_to_the_step_is_ignored) {
  const auto job = context();
  replica_store replica{job};
  troupe::ring_step step{job, replica, {0, 2, 7}};
  const auto where = replica.where(0);
  std::vector<ring_contribution> start;
  step.begin(5);
  step.contribute({where.begin, where.end - 1}, 4, payload::floats(where.size() - 1), start);
  step.contribute(where, 4, payload::floats(where.size() - 1), start);
  BOOST_TEST(start.empty());
  step.contribute(where, 4, payload::floats(where.size()), start);
  step.contribute(where, 4, payload::floats(where.size()), start);
  BOOST_TEST(start.size() == 1u);
  for (const reduction_id id : {reduction_id{4, 0, 0}, {6, 0, 0}, {5, 1, 0}})
    step.reduced({id, 4, {}}, start);
  BOOST_TEST(start.size() == 1u);
  BOOST_TEST(!step.outcome());
}

BOOST_AUTO_TEST_SUITE_END()
