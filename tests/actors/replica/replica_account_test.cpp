#include "actors/replica/replica_account.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(replica_account)

namespace {

std::vector<float> sum(const std::vector<float>& a, const std::vector<float>& b) {
  auto result = a;
  for (std::size_t i = 0; i < b.size(); ++i)
    result[i] += b[i];
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(all_replicas_report_the_same) {
  const std::vector<troupe::counted_worker> workers{{0, 7}, {3, 9}};
  troupe::replica_account first{workers, 0};
  troupe::replica_account second{workers, 1};
  for (int exchange = 0; exchange < 2; ++exchange) {
    first.applied(10);
    first.applied(10);
    second.applied(10);
    second.quarantined(4);
    BOOST_TEST(first.own_samples() == 20U);
    BOOST_TEST(second.own_samples() == 14U);
    const auto counts = sum(first.own_counts(), second.own_counts());
    BOOST_TEST(counts.size() == first.elements());
    BOOST_TEST(first.fits(counts, 34, 20));
    BOOST_TEST(first.steps() == 2U * (exchange + 1));
    first.exchanged(counts, 34, 20);
    BOOST_TEST(first.steps() == 2U * (exchange + 1));
    second.exchanged(counts, 34, 14);
    BOOST_TEST(first.own_samples() == 0U);
  }
  const auto report = first.report();
  BOOST_TEST(report.SerializeAsString() == second.report().SerializeAsString());
  BOOST_TEST(report.version() == 4U);
  BOOST_TEST(report.samples() == 60U);
  BOOST_TEST(report.quarantined_samples() == 8U);
  BOOST_TEST_REQUIRE(report.decided_size() == 2);
  BOOST_TEST(report.decided(0).applied() == 4U);
  BOOST_TEST(report.decided(0).incarnation() == 7U);
  BOOST_TEST(report.decided(1).worker() == 3U);
  BOOST_TEST(report.decided(1).applied() == 2U);
  BOOST_TEST(report.decided(1).quarantined() == 2U);
}

// Workers exchange their numbers of steps and samples. Steps that a worker makes during an exchange
// belong to the next one. Workers may have made different numbers of steps.
BOOST_AUTO_TEST_CASE(workers_go_on_during_an_exchange) {
  const std::vector<troupe::counted_worker> workers{{0, 7}, {3, 9}};
  troupe::replica_account first{workers, 0};
  troupe::replica_account second{workers, 1};
  std::uint64_t all = 0;
  for (const std::uint64_t samples : {10, 6}) {
    first.applied(samples);
    const auto sums = sum(first.own_counts(), second.own_counts());
    const auto own = first.own_samples();
    const auto other = second.own_samples();
    first.quarantined(3);
    second.applied(1);
    // In the second exchange, the first worker has two new steps: one that it made during the first
    // exchange, and one that it made afterwards.
    BOOST_TEST(first.own_steps(sums) == (all == 0 ? 1U : 2U));
    BOOST_TEST(second.own_steps(sums) == (all == 0 ? 0U : 1U));
    BOOST_TEST(second.most_steps(sums) == first.own_steps(sums));
    BOOST_TEST(first.fits(sums, own + other, own));
    BOOST_TEST(second.fits(sums, own + other, other));
    first.exchanged(sums, own + other, own);
    second.exchanged(sums, own + other, other);
    all += own + other;
  }
  BOOST_TEST(all == 10U + 3 + 6 + 1);
  BOOST_TEST(first.own_samples() == 3U);
  BOOST_TEST(second.own_samples() == 1U);
  const auto report = first.report();
  BOOST_TEST(report.decided(0).sequence() == 3U);
  BOOST_TEST(report.decided(0).quarantined() == 1U);
  BOOST_TEST(report.decided(1).sequence() == 1U);
  BOOST_TEST(report.samples() == all - 3);
  BOOST_TEST(second.report().decided(0).fingerprint() == 3U);
}

BOOST_AUTO_TEST_CASE(sums_that_do_not_fit) {
  troupe::replica_account account{{{0, 7}, {3, 9}}, 0};
  account.applied(10);
  BOOST_TEST(account.fits(account.own_counts(), 10, 10));
  auto more = account.own_counts();
  more[0] = 2;
  BOOST_TEST(!account.fits(more, 10, 10));
  more[0] = 0.5F;
  BOOST_TEST(!account.fits(more, 10, 10));
  BOOST_TEST(!account.fits(account.own_counts(), 9, 10));
  BOOST_TEST(!account.fits(account.own_counts(), 20, 11));
}

BOOST_AUTO_TEST_SUITE_END()
