#include "actors/output/record_queue.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(record_queue)

namespace {

run_progress progress_of(std::uint64_t updates) {
  run_progress result;
  result.updates = updates;
  return result;
}

epoch_report epoch_of(std::uint32_t epoch) {
  epoch_report result;
  result.epoch = epoch;
  return result;
}

/// Removes all records. Returns them as text, in order: "p3 e1 n w7" for progress 3, epoch 1, a
/// notice "n", and weights of version 7.
std::string contents(troupe::record_queue& x) {
  std::string result;
  while (auto next = x.pop()) {
    result += result.empty() ? "" : " ";
    if (auto* y = std::get_if<run_progress>(&*next))
      result += "p" + std::to_string(y->updates);
    else if (auto* z = std::get_if<epoch_report>(&*next))
      result += "e" + std::to_string(z->epoch);
    else if (auto* w = std::get_if<record_weights>(&*next))
      result += "w" + std::to_string(w->version);
    else
      result += std::get<run_notice>(*next).text;
  }
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(in_order) {
  troupe::record_queue x{4};
  x.push(progress_of(1));
  x.push(run_notice{"n"});
  x.push(epoch_of(1));
  BOOST_TEST(contents(x) == "p1 n e1");
  BOOST_TEST(x.size() == 0U);
}

BOOST_AUTO_TEST_CASE(progress_is_left_out_first) {
  troupe::record_queue x{4};
  x.push(epoch_of(1));
  for (std::uint64_t i = 1; i <= 100; ++i)
    x.push(progress_of(i));
  x.push(run_notice{"n"});
  x.push(epoch_of(2));
  BOOST_TEST(x.left_out() == 0U);
  BOOST_TEST(contents(x) == "e1 p100 n e2");
}

BOOST_AUTO_TEST_CASE(notices_before_reports) {
  troupe::record_queue x{2};
  x.push(run_notice{"n"});
  for (std::uint32_t i = 1; i <= 3; ++i)
    x.push(epoch_of(i));
  BOOST_TEST(x.left_out() == 2U);
  BOOST_TEST(contents(x) == "e2 e3");
}

// A run may have hundreds of short epochs while the disk is busy.
BOOST_AUTO_TEST_CASE(reports_of_many_short_epochs) {
  troupe::record_queue x;
  for (std::uint32_t i = 1; i <= 5000; ++i)
    x.push(epoch_of(i));
  BOOST_TEST(x.left_out() == 0U);
  BOOST_TEST(x.size() == 5000U);
}

// The file of the weights is overwritten each time, and each copy of the weights is large. So the
// queue only keeps the newest.
BOOST_AUTO_TEST_CASE(the_newest_weights_are_kept) {
  troupe::record_queue x{4};
  for (std::uint64_t i = 1; i <= 50; ++i)
    x.push(record_weights{i, {}});
  for (std::uint64_t i = 1; i <= 50; ++i)
    x.push(progress_of(i));
  BOOST_TEST(contents(x) == "w50 p48 p49 p50");
}

BOOST_AUTO_TEST_CASE(weights_of_each_file) {
  troupe::record_queue x;
  record_weights best{1, {}, 1, best_evaluation{}};
  x.push(best);
  x.push(record_weights{1, {}, 1});
  x.push(record_weights{2, {}, 2});
  best.version = 3;
  x.push(best);
  BOOST_TEST(x.size() == 2U);
  BOOST_TEST(std::get<record_weights>(*x.pop()).version == 2U);
  BOOST_TEST(std::get<record_weights>(*x.pop()).version == 3U);
}

BOOST_AUTO_TEST_SUITE_END()
