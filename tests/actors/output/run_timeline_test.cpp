#include "actors/output/run_timeline.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

using namespace troupe;
using namespace std::chrono_literals;
using status = proto::TaskStatus;

BOOST_AUTO_TEST_SUITE(run_timeline)

namespace {

const auto start = activity::time_point{} + 1h;

/// A worker that computes in the first part of each `period`, and waits in the second part.
task_timeline worker(std::uint32_t index, std::uint64_t steps, std::chrono::microseconds period) {
  task_timeline result{{job_kind::worker, index}, {}, {}};
  for (std::uint64_t i = 0; i < steps; ++i) {
    const auto begin = start + i * period;
    result.done.push_back({begin, begin + period / 2, status::COMPUTING, i, std::nullopt});
    result.done.push_back({begin + period / 2, begin + period, status::WAITING_FOR_UPDATE, i,
                           task_name{job_kind::ps, 1}});
  }
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(trace_events_are_those_of_perfetto) {
  troupe::run_timeline x;
  x.tasks = {worker(0, 2, 3ms)};
  x.tasks[0].exchanged = {{.begin = start + 1ms, .end = start + 2ms + 5ns}};
  x.marks = {{start - 1s, "before the first activity"}, {start + 4ms, "a \"quoted\" \xff text"}};
  const auto trace = nlohmann::json::parse(trace_events(x));
  const auto& events = trace.at("traceEvents");
  std::map<std::string, std::vector<nlohmann::json>> by_kind;
  for (const auto& event : events)
    by_kind[event.at("ph")].push_back(event);
  BOOST_TEST_REQUIRE(by_kind["X"].size() == 5u);
  const auto& wait = by_kind["X"][1];
  BOOST_TEST(wait.at("name") == "waiting for updates");
  BOOST_TEST(wait.at("ts") == 1500.0);
  BOOST_TEST(wait.at("dur") == 1500.0);
  BOOST_TEST(wait.at("args").at("step") == 0);
  BOOST_TEST(wait.at("args").at("last message from") == "ps/1");
  const auto& exchange = by_kind["X"][4];
  BOOST_TEST(exchange.at("name") == "exchanging");
  BOOST_TEST(exchange.at("dur") == 1000.005);
  BOOST_TEST(exchange.at("tid") != wait.at("tid"));
  BOOST_TEST_REQUIRE(by_kind["i"].size() == 1u, "the mark before the first activity is left out");
  BOOST_TEST(by_kind["i"][0].at("name") == "a \"quoted\" \xef\xbf\xbd text");
  BOOST_TEST(by_kind["i"][0].at("ts") == 4000.0);
  std::vector<std::string> names;
  for (const auto& event : by_kind["M"])
    names.push_back(event.at("args").at("name"));
  BOOST_TEST((std::ranges::find(names, "worker/0") != names.end()));
}

BOOST_AUTO_TEST_CASE(an_empty_timeline_is_valid) {
  const auto trace = nlohmann::json::parse(trace_events({}));
  BOOST_TEST(trace.at("traceEvents").size() == 2u, "the names of the process of the run");
}

BOOST_AUTO_TEST_CASE(a_window_has_the_last_steps_of_each_worker) {
  troupe::run_timeline x;
  x.tasks = {worker(0, 100, 1ms), worker(1, 20, 5ms)};
  const auto window = newest_steps(x.tasks, 8, 1000);
  BOOST_TEST((window.begin == start + 60ms), "the slow worker's steps 12 to 19");
  BOOST_TEST((window.end == start + 97ms + 500us), "the end of its last computation");
  const auto smaller = newest_steps(x.tasks, 8, 50);
  BOOST_TEST((smaller.begin > window.begin && smaller.begin < smaller.end));
  BOOST_TEST((smaller.end == window.end));
}

BOOST_AUTO_TEST_CASE(a_lost_worker_does_not_end_the_window) {
  troupe::run_timeline x;
  x.tasks = {worker(0, 5'000, 1ms), worker(1, 100, 1ms)};
  const auto window = newest_steps(x.tasks, 8, 1000);
  BOOST_TEST((window.end == start + 4999ms + 500us));
  BOOST_TEST((window.begin == start + 4992ms));
}

BOOST_AUTO_TEST_CASE(without_steps_there_is_no_window) {
  troupe::run_timeline x;
  x.tasks = {{{job_kind::ps, 0}, {{start, start + 1s, status::UPDATING, 0, std::nullopt}}, {}}};
  const auto window = newest_steps(x.tasks, 8, 1000);
  BOOST_TEST((window.begin == window.end));
}

BOOST_AUTO_TEST_CASE(a_window_without_room_is_empty) {
  std::vector<task_timeline> tasks{worker(0, 10, 1ms), worker(1, 10, 1ms), worker(2, 10, 1ms)};
  const auto window = newest_steps(tasks, 8, 0);
  BOOST_TEST((window.begin == window.end));
}

BOOST_AUTO_TEST_SUITE_END()
