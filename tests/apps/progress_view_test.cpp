#include "apps/troupe/progress_view.hpp"

#include "actors/output/text.hpp"
#include "tests/support/input_errors.hpp"

#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

task_status worker(std::uint32_t index) {
  task_status x;
  x.task = {job_kind::worker, index};
  x.samples_per_second = 26'100;
  x.computing = 8.2;
  x.waiting_for_weights = 1.8;
  x.activity = "waits for weights from ps/1";
  x.activity_seconds = 3.2;
  return x;
}

task_status shard(std::uint64_t steps) {
  task_status x;
  x.task = {job_kind::ps, 0};
  x.steps = steps;
  x.steps_per_second = 100;
  x.activity = "waits for gradients";
  return x;
}

run_progress progress(double seconds = 10, std::uint64_t samples = 4000) {
  run_progress x;
  x.epoch = 3;
  x.epochs = 10;
  x.seconds = seconds;
  x.samples = samples;
  x.epoch_samples = 8000;
  x.train_loss = 0.12345;
  x.samples_per_second = 52'310;
  x.updates = 700;
  x.staleness_mean = 1.44;
  x.tasks = {worker(0), shard(1000)};
  return x;
}

progress_view view_of(const run_progress& x) {
  progress_view result;
  result.add(x);
  return result;
}

terminal_style wide(std::size_t width = 160, std::size_t height = 24) {
  return {width, height, false, false};
}

const char* no_variable(const char*) {
  return nullptr;
}

std::map<std::string, const char*> environment;

terminal_style style_with(std::map<std::string, const char*> variables) {
  environment = std::move(variables);
  return style_of_environment([](const char* name) -> const char* {
    const auto i = environment.find(name);
    return i == environment.end() ? nullptr : i->second;
  });
}

} // namespace

BOOST_AUTO_TEST_SUITE(progress_view)

// The seconds of each view of an elastic run begin at 0.
BOOST_AUTO_TEST_CASE(time_left_in_another_view) {
  auto view = view_of(progress(10, 4000));
  view.add(progress(100, 5000));
  auto next = progress(1, 5000);
  next.samples_per_second = 100;
  view.add(next);
  BOOST_TEST(contains(view.line(), "9:50 left"), view.line()); // 59,000 samples
}

BOOST_AUTO_TEST_CASE(before_anything_is_known) {
  const troupe::progress_view view;
  BOOST_TEST(view.empty());
  BOOST_TEST(view.lines(wide()).empty());
}

BOOST_AUTO_TEST_CASE(a_wide_terminal_shows_everything) {
  auto view = view_of(progress());
  epoch_report epoch;
  epoch.test_accuracy = 0.9612;
  view.add(epoch);
  const auto lines = view.lines(wide());
  BOOST_REQUIRE(lines.size() == 3u);
  BOOST_TEST(lines[0]
             == "===============---------------  epoch 3/10   50 %  loss 0.1235  accuracy 96.12 %  "
                "52,310 samples/s  staleness 1.4  0:01 left");
  BOOST_TEST(
    lines[1]
    == "  worker/0  26,100 samples/s   82 % computing  18 % waiting  waits for weights from "
       "ps/1 (3 s)");
  BOOST_TEST(lines[2]
             == "  ps/0         100 updates/s                                 waits for gradients");
}

BOOST_AUTO_TEST_CASE(no_line_is_too_wide) {
  auto x = progress();
  for (std::uint32_t i = 1; i < 300; ++i)
    x.tasks.push_back(worker(i));
  const auto view = view_of(x);
  for (std::size_t width = 1; width < 200; ++width)
    for (const bool unicode : {false, true})
      for (auto& line : view.lines({width, 24, false, unicode}))
        BOOST_REQUIRE(cells_of(line) <= width);
}

BOOST_AUTO_TEST_CASE(what_matters_least_goes_first) {
  const auto view = view_of(progress());
  BOOST_TEST(contains(view.lines(wide(60))[0], "loss 0.1235"));
  BOOST_TEST(contains(view.lines(wide(60))[0], "left"));
  BOOST_TEST(view.lines(wide(60))[0].find("staleness") == std::string::npos);
  BOOST_TEST(view.lines(wide(18))[0] == "epoch 3/10   50 %");
  BOOST_TEST(view.lines(wide(12))[0] == "epoch 3/10");
  BOOST_TEST(view.lines(wide(6))[0] == "epoch.");
}

BOOST_AUTO_TEST_CASE(many_tasks_are_cut_off) {
  auto x = progress();
  for (std::uint32_t i = 1; i < 49; ++i)
    x.tasks.push_back(worker(i));
  const auto view = view_of(x);
  const auto lines = view.lines(wide(160, 24));
  BOOST_TEST(lines.size() == 22u);
  BOOST_TEST(lines.back() == "  ... and 30 more");
  for (std::size_t height = 0; height < 80; ++height)
    BOOST_REQUIRE(view.lines(wide(160, height)).size() <= (height > 0 ? height - 1 : 0));
  BOOST_TEST(view.lines(wide(160, 53)).back().find("more") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_not_known_is_left_out) {
  run_progress x;
  x.epoch = 1;
  x.epochs = 5;
  x.epoch_samples = 1000;
  const auto lines = view_of(x).lines(wide(80));
  BOOST_REQUIRE(lines.size() == 1u);
  BOOST_TEST(lines[0] == "------------------------------  epoch 1/5    0 %");
  BOOST_TEST(view_of(x).line() == "epoch 1/5    0 %");
}

// There is no line about shards if there is only one.
BOOST_AUTO_TEST_CASE(shards_at_the_end) {
  run_summary x;
  x.samples = 1;
  x.tasks = {worker(0), shard(1000)};
  BOOST_TEST(!contains(format_summary(x), "shards"));
  for (std::uint32_t i = 1; i < 10; ++i) {
    x.tasks.push_back(shard(1000));
    x.tasks.back().task.index = i;
    x.tasks.back().bytes_sent_per_second = i * 1e6;
    x.tasks.back().bytes_received_per_second = 2.5e6;
  }
  const auto text = format_summary(x);
  BOOST_TEST(contains(text,
                      "  shards              ps/0 100 updates/s, 0.0 MB/s sent, 0.0 MB/s received\n"
                      "                      ps/1 100 updates/s, 1.0 MB/s sent, 2.5 MB/s received"),
             text);
  BOOST_TEST(contains(text, "ps/7 100 updates/s"), text);
  BOOST_TEST(!contains(text, "ps/8"), text);
  BOOST_TEST(contains(text, "... and 2 more\n"), text);
}

BOOST_AUTO_TEST_CASE(hidden_communication) {
  run_summary x;
  x.samples = 1;
  x.tasks = {worker(0)};
  x.tasks[0].waiting_for_weights = 1;
  x.tasks[0].waiting_for_update = 2;
  x.tasks[0].exchanging_while_computing = 1;
  const std::string line = "  communication       computing hid 25 % of its time\n";
  BOOST_TEST(contains(format_summary(x), line), format_summary(x));
  x.protocol = "exact";
  BOOST_TEST(!contains(format_summary(x), "communication"));
}

// With one worker, gradients are never stale, and nothing may be in transit.
BOOST_AUTO_TEST_CASE(one_worker) {
  run_summary x;
  x.samples = 1;
  x.workers = 1;
  x.tasks = {worker(0)};
  BOOST_TEST(!contains(format_summary(x), "staleness"), format_summary(x));
  BOOST_TEST(!contains(format_summary(x), "communication"), format_summary(x));
  x.workers = 2;
  BOOST_TEST(contains(format_summary(x), "staleness           gradients came from weights 0.00"),
             format_summary(x));
  BOOST_TEST(contains(format_summary(x), "computing hid 0 %"), format_summary(x));
  auto now = progress();
  now.staleness_mean = 0;
  BOOST_TEST(!contains(view_of(now).line(), "staleness"));
  now.tasks.push_back(worker(1));
  BOOST_TEST(contains(view_of(now).line(), "staleness 0.0"));
}

BOOST_AUTO_TEST_CASE(a_damped_learning_rate) {
  run_summary x;
  x.samples = 1;
  x.pacing.emplace();
  x.pacing->rate_damping = 0.0625;
  BOOST_TEST(contains(format_summary(x),
                      "the learning rate was multiplied by 0.062 at the end, so "
                      "that stale updates do not overshoot\n"),
             format_summary(x));
  x.pacing->rate_damping = 3.4e-111;
  BOOST_TEST(contains(format_summary(x),
                      "the learning rate was multiplied by 3.4e-111 at the end: "
                      "training has in effect stopped. Lower learning_rate.base\n"),
             format_summary(x));
}

BOOST_AUTO_TEST_CASE(confusion_of_named_classes) {
  run_summary x;
  x.samples = 1;
  x.measures.confusion = {5, 1, 0, 7};
  x.class_names = {"cat", "dog"};
  BOOST_TEST(contains(format_summary(x),
                      "confusion           class cat: 5 1\n"
                      "                      class dog: 0 7\n"),
             format_summary(x));
  x.class_names.clear();
  BOOST_TEST(contains(format_summary(x), "class 1: 0 7\n"), format_summary(x));
}

BOOST_AUTO_TEST_CASE(waiting_for_data) {
  run_summary x;
  x.samples = 1;
  x.tasks = {worker(0), worker(1)}; // 10 s each
  x.tasks[0].waiting_for_data = 4.5;
  BOOST_TEST(!contains(format_summary(x), "for data"));
  x.tasks[1].waiting_for_data = 5.5;
  BOOST_TEST(contains(format_summary(x),
                      "  data                workers waited 33 % of their time for data "
                      "(data.read_threads may help)\n"),
             format_summary(x));
}

BOOST_AUTO_TEST_CASE(the_time_left) {
  auto view = view_of(progress(10, 4000)); // 20,000 of 80,000 samples so far
  view.add(progress(20, 6000));            // 2,000 more samples in 10 s
  BOOST_TEST(contains(view.line(), "4:50 left"));
}

BOOST_AUTO_TEST_CASE(colours) {
  auto style = wide();
  style.colour = true;
  const auto view = view_of(progress());
  BOOST_TEST(contains(view.lines(style)[0], "\033["));
  for (auto& line : view.lines(wide()))
    BOOST_TEST(line.find('\033') == std::string::npos);
  BOOST_TEST(view.line().find('\033') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_environment_decides) {
  BOOST_TEST(style_of_environment(no_variable).colour);
  BOOST_TEST(!style_of_environment(no_variable).unicode);
  BOOST_TEST(!style_with({{"NO_COLOR", "1"}}).colour);
  BOOST_TEST(style_with({{"NO_COLOR", ""}}).colour);
  BOOST_TEST(!style_with({{"TERM", "dumb"}}).colour);
  BOOST_TEST(style_with({{"LANG", "C.UTF-8"}}).unicode);
  BOOST_TEST(style_with({{"LANG", "C"}, {"LC_CTYPE", "de_DE.utf8"}}).unicode);
  BOOST_TEST(!style_with({{"LANG", "C.UTF-8"}, {"LC_ALL", "C"}}).unicode);
}

BOOST_AUTO_TEST_CASE(activities_cannot_spoil_the_terminal) {
  auto x = progress();
  x.tasks[0].activity = "\033[2Jwaits\nfor you";
  BOOST_TEST(contains(view_of(x).lines(wide())[1], "[2Jwaits\\nfor you"));
  BOOST_TEST(view_of(x).lines(wide())[1].find('\033') == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
