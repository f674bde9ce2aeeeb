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
    first.exchanged(counts, 34);
    second.exchanged(counts, 34);
    BOOST_TEST(first.own_samples() == 0U);
  }
  const auto report = first.report(4);
  BOOST_TEST(report.SerializeAsString() == second.report(4).SerializeAsString());
  BOOST_TEST(report.samples() == 60U);
  BOOST_TEST(report.quarantined_samples() == 8U);
  BOOST_TEST_REQUIRE(report.decided_size() == 2);
  BOOST_TEST(report.decided(0).applied() == 4U);
  BOOST_TEST(report.decided(0).incarnation() == 7U);
  BOOST_TEST(report.decided(1).worker() == 3U);
  BOOST_TEST(report.decided(1).applied() == 2U);
  BOOST_TEST(report.decided(1).quarantined() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()
