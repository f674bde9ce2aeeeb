#include "actors/coordinator/timeline.hpp"

#include "messages/problems.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace std::chrono_literals;
using status = proto::TaskStatus;

BOOST_AUTO_TEST_SUITE(timeline)

namespace {

constexpr std::uint64_t here = 7;
constexpr std::uint64_t elsewhere = 8;
constexpr task_name first_worker{job_kind::worker, 0};
constexpr task_name second_worker{job_kind::worker, 1};
const auto start = activity::time_point{} + 10h;

/// A report that is sent at `sent` (on the sender's clock). The task has computed for the
/// millisecond before `sent`, and waits since then.
status report(std::uint64_t host, activity::time_point sent, std::uint64_t step = 0) {
  status result;
  result.set_doing(status::WAITING_FOR_UPDATE);
  result.set_steps(step);
  const activity computed{
    .begin = sent - 1ms, .end = sent, .doing = status::COMPUTING, .step = step};
  *result.mutable_done() = encode(std::span{&computed, 1});
  result.set_clock(static_cast<std::uint64_t>(sent.time_since_epoch().count()));
  result.set_host(host);
  BOOST_TEST(problem_of(result) == "");
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(processes_of_one_host_share_a_clock) {
  troupe::timeline x{here};
  x.hear(first_worker, report(here, start), start + 5ms);
  const auto all = x.newest();
  BOOST_TEST_REQUIRE(all.tasks.size() == 1u);
  BOOST_TEST_REQUIRE(all.tasks[0].done.size() == 1u);
  BOOST_TEST((all.tasks[0].done[0].begin == start - 1ms));
}

BOOST_AUTO_TEST_CASE(clocks_of_other_hosts_are_estimated_from_the_fastest_message) {
  troupe::timeline x{here};
  // The clock of the other host is an hour behind. Messages take 5, 2 and 9 ms.
  x.hear(first_worker, report(elsewhere, start - 1h, 0), start + 5ms);
  x.hear(second_worker, report(elsewhere, start - 1h + 250ms, 0), start + 252ms);
  x.hear(first_worker, report(elsewhere, start - 1h + 250ms, 1), start + 259ms);
  const auto all = x.newest();
  BOOST_TEST_REQUIRE(all.tasks.size() == 2u);
  BOOST_TEST((all.tasks[0].done.back().end == start + 252ms));
  BOOST_TEST((all.tasks[1].done.back().end == start + 252ms), "one estimate for a host");
}

BOOST_AUTO_TEST_CASE(hosts_that_are_not_known_have_clocks_of_their_own) {
  troupe::timeline x{here};
  x.hear(first_worker, report(0, start - 1h), start);
  x.hear(second_worker, report(0, start + 1h), start);
  const auto all = x.newest();
  for (const auto& task : all.tasks)
    BOOST_TEST((task.done.back().end == start));
}

BOOST_AUTO_TEST_CASE(old_bounds_of_a_clock_are_forgotten) {
  clock_difference x;
  x.add(1'000'000'000, activity::time_point{1s + 1ms});
  BOOST_TEST((x.value() == 1ms));
  // This host's clock now gains a millisecond in each ten seconds.
  for (int i = 1; i <= 4; ++i)
    x.add(1'000'000'000 + std::uint64_t(i) * 10'000'000'000,
          activity::time_point{1s + i * 10s + (1 + i) * 1ms});
  BOOST_TEST((x.value() == 3ms), "the bounds of the first two messages are forgotten");
  x.add(60'000'000'000, activity::time_point{60s});
  BOOST_TEST((x.value() == 0ms), "a smaller bound counts at once");
}

BOOST_AUTO_TEST_CASE(what_has_not_ended_lasts_until_the_newest_report) {
  troupe::timeline x{here};
  x.hear(first_worker, report(here, start), start);
  auto stuck = report(here, start + 2s, 1);
  stuck.clear_done();
  stuck.set_seconds(2);
  stuck.set_step_before(1);
  stuck.set_exchanging_since(static_cast<std::uint64_t>((start + 1s).time_since_epoch().count()));
  x.hear(first_worker, stuck, start + 2s);
  const auto all = x.newest();
  BOOST_TEST_REQUIRE(all.tasks[0].done.size() == 2u);
  const auto& waits = all.tasks[0].done[1];
  BOOST_TEST((waits.doing == status::WAITING_FOR_UPDATE));
  BOOST_TEST((waits.begin == start && waits.end == start + 2s));
  BOOST_TEST(waits.step == 1u);
  BOOST_TEST_REQUIRE(all.tasks[0].exchanged.size() == 1u);
  BOOST_TEST((all.tasks[0].exchanged[0].begin == start + 1s));
  BOOST_TEST((all.tasks[0].exchanged[0].end == start + 2s));
}

BOOST_AUTO_TEST_CASE(the_size_is_limited) {
  troupe::timeline x{here};
  for (std::uint64_t i = 0; i < 20'000; ++i)
    x.hear(first_worker, report(here, start + i * 2ms, i), start + i * 2ms);
  for (int i = 0; i < 300; ++i)
    x.mark(std::to_string(i), start);
  const auto all = x.newest();
  BOOST_TEST(all.tasks[0].done.size() == 16'384u);
  BOOST_TEST(all.tasks[0].done.back().step == 19'999u);
  BOOST_TEST(all.marks.size() == 256u);
  BOOST_TEST(all.marks.back().text == "299");
}

BOOST_AUTO_TEST_CASE(reports_of_older_versions_are_ignored) {
  troupe::timeline x{here};
  status old;
  old.set_doing(status::COMPUTING);
  x.hear(first_worker, old, start);
  BOOST_TEST(x.newest().tasks.empty());
}

BOOST_AUTO_TEST_CASE(reports_that_overlap_are_cut) {
  troupe::timeline x{here};
  x.hear(first_worker, report(here, start), start);
  x.hear(first_worker, report(here, start + 500us), start + 500us);
  const auto all = x.newest();
  BOOST_TEST_REQUIRE(all.tasks[0].done.size() == 2u);
  BOOST_TEST((all.tasks[0].done[1].begin == start));
}

BOOST_AUTO_TEST_SUITE_END()
