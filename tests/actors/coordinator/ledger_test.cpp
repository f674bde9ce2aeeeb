#include "actors/coordinator/ledger.hpp"

#include "actors/parameter_server/gradient_journal.hpp"
#include "tests/support/input_errors.hpp"

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(ledger)

namespace {

constexpr std::uint64_t incarnation = 77;
constexpr std::uint64_t batch = 10;

/// The decisions that several shards made about the gradients of workers 0, 1, ...
class shards {
public:
  explicit shards(std::size_t count) : journals_(count), reports_(count) {}

  void decide(std::size_t shard, std::uint32_t worker, std::uint64_t sequence,
              proto::Outcome what) {
    proto::GradientId id;
    id.set_worker(worker);
    id.set_incarnation(incarnation + worker);
    id.set_sequence(sequence);
    proto::Pushed answer;
    answer.set_outcome(what);
    journals_[shard].record(id, answer, 1, sequence);
    if (what == proto::APPLIED)
      reports_[shard].set_samples(reports_[shard].samples() + batch);
  }

  void apply(std::uint32_t worker, std::uint64_t sequence) {
    for (std::size_t i = 0; i < journals_.size(); ++i)
      decide(i, worker, sequence, proto::APPLIED);
  }

  std::vector<proto::Report> reports() {
    auto result = reports_;
    for (std::size_t i = 0; i < result.size(); ++i)
      for (const auto& x : journals_[i].decided())
        *result[i].add_decided() = x;
    return result;
  }

private:
  std::vector<gradient_journal> journals_;
  std::vector<proto::Report> reports_;
};

worker_account account(std::uint32_t worker, std::uint64_t produced, std::uint64_t requeued = 0,
                       bool vanished = false) {
  return {worker, incarnation + worker, produced, requeued, vanished};
}

lease_account leases(std::uint64_t samples) {
  return {samples, samples, 0, samples};
}

void expect_only_problem(const troupe::ledger& x, std::string_view text) {
  BOOST_TEST(!x.balanced());
  BOOST_REQUIRE(x.problems.size() == 1u);
  BOOST_TEST(contains(x.problems[0], text));
}

void expect_balanced(const troupe::ledger& x) {
  for (const auto& problem : x.problems)
    BOOST_ERROR(problem);
  BOOST_TEST(x.balanced());
  BOOST_TEST(x.produced == x.applied + x.rejected_stale + x.requeued + x.lost + x.quarantined);
}

} // namespace

BOOST_AUTO_TEST_CASE(everything_applied) {
  shards two{2};
  for (std::uint64_t s = 1; s <= 5; ++s) {
    two.apply(0, s);
    two.apply(1, s);
  }
  auto reports = two.reports();
  reports[0].set_staleness_sum(6);
  reports[1].set_staleness_sum(4);
  reports[1].set_duplicates(3);
  const auto x = balance({account(0, 5), account(1, 5)}, reports, leases(100));
  expect_balanced(x);
  BOOST_TEST(x.produced == 20u);
  BOOST_TEST(x.applied == 20u);
  BOOST_TEST(x.split == 0u);
  BOOST_TEST(x.duplicates == 3u);
  BOOST_TEST(x.staleness_mean == 0.5);
}

BOOST_AUTO_TEST_CASE(rejected_requeued_and_lost) {
  shards two{2};
  two.apply(0, 1);
  // Shard 0 rejects the gradient. It decides for all shards, so shard 1 reports nothing.
  two.decide(0, 0, 2, proto::REJECTED_STALE);
  two.apply(0, 3);
  two.decide(0, 0, 4, proto::LOST);
  two.decide(1, 0, 4, proto::LOST);
  lease_account lent{20, 35, 15, 20};
  const auto x = balance({account(0, 5, 1)}, two.reports(), lent);
  expect_balanced(x);
  BOOST_TEST(x.produced == 10u);
  BOOST_TEST(x.applied == 4u);
  BOOST_TEST(x.rejected_stale == 2u);
  BOOST_TEST(x.requeued == 2u);
  BOOST_TEST(x.lost == 2u);
}

// Some gradients came too late for their step. The samples of a LATE_DROPPED gradient are not
// trained again.
BOOST_AUTO_TEST_CASE(dropped) {
  shards two{2};
  two.apply(0, 1);
  two.decide(0, 0, 2, proto::LATE_DROPPED);
  two.decide(0, 0, 3, proto::LATE_REQUEUED);
  two.apply(0, 4);
  lease_account lent{.expected = 30, .leased = 40, .released = 10, .committed = 20, .dropped = 10};
  auto x = balance({account(0, 4)}, two.reports(), lent);
  expect_balanced(x);
  BOOST_TEST(x.rejected_stale == 4u);
  lent.dropped = 0;
  BOOST_TEST(!balance({account(0, 4)}, two.reports(), lent).balanced());
}

BOOST_AUTO_TEST_CASE(a_worker_that_did_nothing) {
  shards one{1};
  one.apply(0, 1);
  expect_balanced(balance({account(0, 1), account(1, 0)}, one.reports(), leases(10)));
}

BOOST_AUTO_TEST_CASE(nobody_reported) {
  expect_only_problem(balance({account(0, 0)}, {}, leases(0)), "no shard or rank reported");
}

BOOST_AUTO_TEST_CASE(a_gradient_without_a_fate) {
  shards two{2};
  two.apply(0, 1);
  const auto x = balance({account(0, 2)}, two.reports(), leases(10));
  expect_only_problem(x, "worker/0 produced 4 parts, but 2 were decided and 0 requeued");
}

BOOST_AUTO_TEST_CASE(a_gradient_that_nobody_produced) {
  shards two{2};
  two.apply(0, 1);
  two.apply(0, 2);
  const auto x = balance({account(0, 1)}, two.reports(), leases(20));
  expect_only_problem(x, "worker/0 produced 2 parts, but 4 were decided");
}

BOOST_AUTO_TEST_CASE(an_unknown_worker) {
  shards one{1};
  one.apply(0, 1);
  one.apply(4, 1);
  expect_only_problem(balance({account(0, 1)}, one.reports(), leases(20)),
                      "gradients of an unknown worker/4 were decided");
  // A restarted worker has a new incarnation (start number). It counts as a different worker.
  auto other = account(0, 1);
  other.incarnation += 1;
  const auto x = balance({other, account(4, 1)}, one.reports(), leases(20));
  BOOST_TEST(x.problems.size() == 2u);
}

BOOST_AUTO_TEST_CASE(samples_that_do_not_add_up) {
  shards one{1};
  one.apply(0, 1);
  const std::vector workers{account(0, 1)};
  expect_only_problem(balance(workers, one.reports(), {10, 10, 0, 9}),
                      "workers committed 9 samples, but the job has 10");
  expect_only_problem(balance(workers, one.reports(), {10, 20, 9, 10}),
                      "workers leased 11 samples, but the job has 10");
  auto reports = one.reports();
  reports[0].set_samples(11);
  expect_only_problem(balance(workers, reports, leases(10)),
                      "shard or rank 0 decided on 11 samples, but the job has 10");
}

BOOST_AUTO_TEST_CASE(a_gradient_applied_by_one_shard_only) {
  shards two{2};
  two.apply(0, 1);
  two.decide(0, 0, 2, proto::APPLIED);
  two.decide(1, 0, 2, proto::LOST);
  auto reports = two.reports();
  reports[1].set_samples(20);
  const auto x = balance({account(0, 2)}, reports, leases(20));
  BOOST_TEST(x.split == 1u);
  expect_only_problem(x, "1 gradients were applied by some shards and not by others");
}

BOOST_AUTO_TEST_CASE(quarantined_gradients) {
  shards two{2};
  two.apply(0, 1);
  two.decide(0, 0, 2, proto::QUARANTINED);
  two.decide(1, 0, 2, proto::QUARANTINED);
  auto reports = two.reports();
  for (auto& x : reports)
    x.set_quarantined_samples(10);
  const auto x = balance({account(0, 2)}, reports, leases(20));
  expect_balanced(x);
  BOOST_TEST(x.quarantined == 2u);
  BOOST_TEST(x.applied == 2u);
}

BOOST_AUTO_TEST_CASE(a_gradient_quarantined_by_one_shard_only) {
  shards two{2};
  two.decide(0, 0, 1, proto::APPLIED);
  two.decide(1, 0, 1, proto::QUARANTINED);
  auto reports = two.reports();
  reports[1].set_quarantined_samples(10);
  const auto x = balance({account(0, 1)}, reports, leases(10));
  BOOST_TEST(x.split == 1u);
  BOOST_TEST(!x.balanced());
}

BOOST_AUTO_TEST_CASE(as_many_gradients_but_not_the_same_ones) {
  shards two{2};
  two.decide(0, 0, 1, proto::APPLIED);
  two.decide(0, 0, 2, proto::LOST);
  two.decide(1, 0, 1, proto::LOST);
  two.decide(1, 0, 2, proto::APPLIED);
  const auto x = balance({account(0, 2)}, two.reports(), leases(10));
  BOOST_TEST(x.split == 1u);
  expect_only_problem(x, "applied by some shards and not by others");
}

BOOST_AUTO_TEST_CASE(a_worker_that_vanished) {
  // Worker 0 vanished after it had computed 5 gradients. The coordinator knows of 3, and the shards
  // know of 4. The other batches of its lease (the samples that it had to train) were given back.
  shards two{2};
  for (std::uint64_t s = 1; s <= 4; ++s)
    two.apply(0, s);
  two.apply(1, 1);
  const auto x =
    balance({account(0, 3, 0, true), account(1, 1)}, two.reports(), {50, 90, 40, 50, {}});
  expect_balanced(x);
  BOOST_TEST(x.produced == 10u);
  BOOST_TEST(x.applied == 10u);
  // Worker 0 reported 6 gradients before it vanished. The shards know of only 4.
  const auto y =
    balance({account(0, 6, 1, true), account(1, 1)}, two.reports(), {50, 90, 40, 50, {}});
  expect_balanced(y);
  BOOST_TEST(y.produced == 14u);
  BOOST_TEST(y.requeued == 4u);
}

// A worker vanished after it had sent its last gradient to one of two shards. The batch counts as
// trained. The part of the gradient that did not arrive counts as lost.
BOOST_AUTO_TEST_CASE(a_vanished_worker_whose_last_gradient_reached_one_shard) {
  shards two{2};
  two.apply(0, 1);
  two.decide(0, 0, 2, proto::APPLIED);
  auto reports = two.reports();
  reports[0].set_samples(20);
  reports[1].set_samples(10);
  const auto x = balance({account(0, 2, 0, true)}, reports, {20, 20, 0, 20, {0, 10}});
  expect_balanced(x);
  BOOST_TEST(x.applied == 3u);
  BOOST_TEST(x.lost == 1u);
  BOOST_TEST(x.requeued == 0u);
  BOOST_TEST(x.split == 0u);
  // The result is the same if the second part arrived after the worker was given up, and was
  // refused.
  two.decide(1, 0, 2, proto::LOST);
  reports = two.reports();
  reports[0].set_samples(20);
  reports[1].set_samples(10);
  const auto y = balance({account(0, 2, 0, true)}, reports, {20, 20, 0, 20, {0, 10}});
  expect_balanced(y);
  BOOST_TEST(y.lost == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
