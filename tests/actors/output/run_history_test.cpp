#include "actors/output/run_history.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(run_history)

BOOST_AUTO_TEST_CASE(long_runs_are_thinned) {
  for (const std::size_t limit : {2u, 3u, 8u, 11u}) {
    thinned<std::size_t> values{limit};
    for (std::size_t i = 0; i < 1000; ++i) {
      values.add(i);
      const auto& kept = values.values();
      BOOST_REQUIRE(kept.size() <= limit + 1);
      BOOST_REQUIRE(kept.size() >= std::min(i + 1, limit / 2));
      BOOST_REQUIRE(kept.front() == 0u);
      BOOST_REQUIRE(kept.back() == i);
      // The kept points are at equal distances, except for the last one.
      for (std::size_t k = 2; k + 1 < kept.size(); ++k)
        BOOST_REQUIRE(kept[k] - kept[k - 1] == kept[1] - kept[0]);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_goes_while_there_is_room) {
  thinned<int> values{10};
  for (int i = 0; i < 10; ++i)
    values.add(i);
  BOOST_TEST(values.values().size() == 10u);
}

BOOST_AUTO_TEST_CASE(progress_counts_in_epochs) {
  troupe::run_history history;
  run_progress x;
  x.epoch = 3;
  x.epoch_samples = 1000;
  history.add(x);
  BOOST_TEST(history.progress().empty(), "nothing is drawn before there is something");
  x.samples = 250;
  x.seconds = 7;
  x.train_loss = 0.5;
  x.samples_per_second = 100;
  history.add(x);
  BOOST_REQUIRE(history.progress().size() == 1u);
  const auto& p = history.progress()[0];
  BOOST_TEST(p.epochs == 2.25);
  BOOST_TEST(p.seconds == 7.0);
  BOOST_TEST(p.train_loss == 0.5);
  BOOST_TEST(p.samples_per_second == 100.0);
}

BOOST_AUTO_TEST_CASE(notices_are_bounded) {
  troupe::run_history history;
  for (int i = 0; i < 1000; ++i)
    history.add(dated_notice{1.0 * i, "notice " + std::to_string(i)});
  BOOST_TEST(history.notices().size() + history.notices_left_out() == 1000u);
  BOOST_TEST(history.notices_left_out() > 0u);
  BOOST_TEST(history.notices().front().text == "notice 0");
}

BOOST_AUTO_TEST_SUITE_END()
