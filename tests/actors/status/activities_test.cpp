#include "actors/status/activities.hpp"

#include "actors/status/activity_board.hpp"
#include "messages/problems.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace std::chrono_literals;
using status = proto::TaskStatus;

BOOST_AUTO_TEST_SUITE(activities)

namespace {

const auto start = activity::time_point{} + 1h;

/// Activity i lasts from i to i + 1 milliseconds after `start`.
activity millisecond(std::uint64_t i, status::Doing doing = status::COMPUTING) {
  return {.begin = start + i * 1ms, .end = start + (i + 1) * 1ms, .doing = doing, .step = i};
}

} // namespace

BOOST_AUTO_TEST_CASE(messages_keep_everything) {
  std::vector<activity> sent{millisecond(3), millisecond(4, status::WAITING_FOR_UPDATE),
                             millisecond(9, status::WAITING_FOR_WEIGHTS), millisecond(20)};
  sent[1].arrived = task_name{job_kind::worker, 3};
  sent[2].arrived = task_name{job_kind::ps, 1};
  sent[3].arrived = task_name{job_kind::worker, 3};
  const auto message = encode(sent);
  BOOST_TEST(message.tasks_size() == 2);
  status report;
  *report.mutable_done() = message;
  BOOST_TEST(problem_of(report) == "");
  BOOST_TEST((decode(message, 0ns) == sent));
}

BOOST_AUTO_TEST_CASE(times_are_moved_to_the_clock_of_the_receiver) {
  const auto received = decode(encode(std::vector{millisecond(0), millisecond(5)}), 3s);
  BOOST_TEST((received.front().begin == start + 3s));
  BOOST_TEST((received.back().end == start + 3s + 6ms));
  const auto earlier = decode(encode(std::vector{millisecond(0)}), -2h);
  BOOST_TEST((earlier.front().begin == start - 2h), "a time before the clock's zero");
}

BOOST_AUTO_TEST_CASE(the_oldest_are_forgotten) {
  recent_activities recent;
  for (std::uint64_t i = 0; i < recent_activities::most; ++i)
    recent.add(millisecond(i));
  BOOST_TEST(recent.after(0).size() == recent_activities::most);
  BOOST_TEST(recent.after(recent.count()).empty());
  for (std::uint64_t i = 0; i < 10; ++i)
    recent.add(millisecond(recent_activities::most + i));
  const auto all = recent.after(0);
  BOOST_TEST(all.size() == recent_activities::most);
  BOOST_TEST(all.front().step == 10u);
  BOOST_TEST(all.back().step == recent_activities::most + 9);
  const auto newest = recent.after(recent_activities::most + 7);
  BOOST_TEST(newest.size() == 3u);
  BOOST_TEST(newest.front().step == recent_activities::most + 7);
}

BOOST_AUTO_TEST_CASE(activities_do_not_overlap) {
  recent_activities recent;
  recent.add({.begin = start, .end = start + 10us});
  recent.add({.begin = start + 8us, .end = start + 20us});
  recent.add({.begin = start + 12us, .end = start + 19us});         // ends before the last one
  recent.add({.begin = start + 20us, .end = start + 20us + 999ns}); // too short
  const auto all = recent.after(0);
  BOOST_TEST_REQUIRE(all.size() == 2u);
  BOOST_TEST((all[1].begin == start + 10us));
  BOOST_TEST((all[1].end == start + 20us));
}

BOOST_AUTO_TEST_CASE(a_board_reports_what_has_ended) {
  troupe::activity_board board;
  board.enter(status::WAITING_FOR_WEIGHTS, start);
  board.await({job_kind::ps, 0});
  board.await({job_kind::ps, 1});
  board.arrived({job_kind::ps, 1});
  board.arrived({job_kind::ps, 0});
  board.exchange(true, start + 1ms);
  board.enter(status::COMPUTING, start + 2ms);
  status first;
  const auto seen = board.add_ended(first, {});
  const auto waited = decode(first.done(), 0ns);
  BOOST_TEST_REQUIRE(waited.size() == 1u);
  BOOST_TEST((waited[0]
              == activity{.begin = start,
                          .end = start + 2ms,
                          .doing = status::WAITING_FOR_WEIGHTS,
                          .arrived = task_name{job_kind::ps, 0}}));
  BOOST_TEST(!first.has_exchanged(), "the exchange has not ended");
  BOOST_TEST(first.exchanging_since() == ((1h + 1ms) / 1ns));
  board.exchange(false, start + 4ms);
  board.count_step(start + 5ms);
  board.enter(status::WAITING_FOR_UPDATE, start + 5ms);
  board.enter(status::COMPUTING, start + 7ms);
  status second;
  const auto last = board.add_ended(second, seen);
  const auto done = decode(second.done(), 0ns);
  BOOST_TEST_REQUIRE(done.size() == 2u);
  BOOST_TEST((done[0].doing == status::COMPUTING));
  BOOST_TEST(!done[0].arrived);
  BOOST_TEST(done[0].step == 0u, "the number of steps before the activity");
  BOOST_TEST(done[1].step == 1u);
  BOOST_TEST(second.step_before() == 1u);
  const auto exchanged = decode(second.exchanged(), 0ns);
  BOOST_TEST_REQUIRE(exchanged.size() == 1u);
  BOOST_TEST((exchanged[0].begin == start + 1ms && exchanged[0].end == start + 4ms));
  status third;
  board.add_ended(third, last);
  BOOST_TEST((!third.has_done() && !third.has_exchanged()));
}

BOOST_AUTO_TEST_CASE(every_activity_has_a_name) {
  for (int i = 1; i < status::Doing_ARRAYSIZE; ++i)
    BOOST_TEST(activity_name(static_cast<status::Doing>(i)) != activity_name(status::DOING_UNSET),
               status::Doing_Name(i) << " has no name");
}

BOOST_AUTO_TEST_SUITE_END()
