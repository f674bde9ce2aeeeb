#include "actors/output/run_report.hpp"

#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include <limits>

using namespace troupe;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(run_report)

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

run_summary summary() {
  run_summary x;
  x.counted = true;
  x.protocol = "async_ps";
  x.workers = 2;
  x.seconds = 1.5;
  x.samples = 80'000;
  x.samples_per_second = 53'333.25;
  x.train_loss = 0.1;
  x.test_loss = 0.2;
  x.test_accuracy = 0.96;
  x.applied = 2500;
  x.rejected_stale = 1;
  x.requeued = 2;
  x.lost = 3;
  x.quarantined = 6;
  x.dropped_samples = 7;
  x.updates_per_second = 1250;
  x.pacing = pacing_status{2.5, 0.75, 0.5, 1, 8, 17};
  x.split = 4;
  x.duplicates = 5;
  x.staleness_mean = 0.75;
  x.staleness[0] = 9;
  x.staleness[15] = 1;
  task_status worker;
  worker.task = {job_kind::worker, 1};
  worker.steps = 10;
  worker.steps_per_second = 12.5;
  worker.samples = 320;
  worker.samples_per_second = 100;
  worker.bytes_sent_per_second = 2e6;
  worker.bytes_received_per_second = 3e6;
  worker.staleness_mean = 0.5;
  worker.computing = 1;
  worker.exchanging_while_computing = 0.25;
  worker.waiting_for_lease = 2;
  worker.waiting_for_data = 3;
  worker.waiting_for_weights = 4;
  worker.waiting_for_update = not_a_number;
  task_status shard;
  shard.task = {job_kind::ps, 0};
  shard.steps = 20;
  shard.steps_per_second = 25;
  x.tasks = {worker, shard};
  x.weights_sha256 = "abc";
  x.coefficients = {2.938889, -0.001037};
  return x;
}

} // namespace

BOOST_AUTO_TEST_CASE(share_of_hidden_communication) {
  BOOST_TEST(!hidden_share({}));
  task_status first;
  first.computing = 10;
  first.waiting_for_lease = 5;
  BOOST_TEST(!hidden_share({first}));
  first.exchanging_while_computing = 3;
  BOOST_TEST(*hidden_share({first}) == 1);
  task_status second;
  second.waiting_for_weights = 4;
  second.waiting_for_update = 5;
  BOOST_TEST(*hidden_share({first, second}) == 0.25);
  BOOST_TEST(*hidden_share({second}) == 0);
}

BOOST_AUTO_TEST_CASE(the_last_line) {
  const auto text = to_json(summary());
  BOOST_TEST(text.find('\n') == std::string::npos);
  const auto line = json::parse(text);
  const json expected{
    {"event", "end"},
    {"protocol", "async_ps"},
    {"workers", 2},
    {"seconds", 1.5},
    {"samples", 80'000},
    {"samples_per_second", 53'333.25},
    {"train_loss", 0.1},
    {"test_loss", 0.2},
    {"test_accuracy", 0.96},
    {"applied", 2500},
    {"rejected_stale", 1},
    {"requeued", 2},
    {"lost", 3},
    {"quarantined", 6},
    {"dropped_samples", 7},
    {"updates_per_second", 1250.0},
    {"staleness_running", 2.5},
    {"gradient_norm_running", 0.75},
    {"limited", 17},
    {"rate_damping", 0.5},
    {"overshoots", 1},
    {"rate_halvings", 8},
    {"split", 4},
    {"duplicates", 5},
    {"staleness_mean", 0.75},
    {"staleness",
     {{0, 9},
      {1, 0},
      {2, 0},
      {3, 0},
      {4, 0},
      {6, 0},
      {8, 0},
      {12, 0},
      {16, 0},
      {24, 0},
      {32, 0},
      {48, 0},
      {64, 0},
      {96, 0},
      {128, 0},
      {256, 1}}},
    {"tasks",
     {{{"task", "worker/1"},
       {"steps", 10},
       {"steps_per_second", 12.5},
       {"samples", 320},
       {"samples_per_second", 100.0},
       {"bytes_sent_per_second", 2e6},
       {"bytes_received_per_second", 3e6},
       {"staleness_mean", 0.5},
       {"computing", 1.0},
       {"exchanging_while_computing", 0.25},
       {"waiting_for_lease", 2.0},
       {"waiting_for_data", 3.0},
       {"waiting_for_weights", 4.0},
       {"waiting_for_update", nullptr}},
      {{"task", "ps/0"},
       {"steps", 20},
       {"steps_per_second", 25.0},
       {"bytes_sent_per_second", 0.0},
       {"bytes_received_per_second", 0.0}}}},
    {"weights_sha256", "abc"},
    {"coefficients", {2.938889, -0.001037}},
  };
  BOOST_TEST(line == expected, text);
}

BOOST_AUTO_TEST_CASE(what_a_run_may_lack) {
  auto x = summary();
  x.test_accuracy.reset();
  x.coefficients.clear();
  const auto line = json::parse(to_json(x));
  BOOST_TEST(line.at("test_accuracy").is_null());
  BOOST_TEST(!line.contains("coefficients"));
  BOOST_TEST(!line.contains("failure"));
  x.failure = "worker/1 \"left\"\n";
  BOOST_TEST(json::parse(to_json(x)).at("failure") == x.failure);
}

BOOST_AUTO_TEST_CASE(what_was_not_counted_is_not_zero) {
  auto x = summary();
  x.counted = false;
  const auto line = json::parse(to_json(x));
  for (const char* name : {"applied", "rejected_stale", "requeued", "lost", "quarantined",
                           "dropped_samples", "split", "duplicates"})
    BOOST_TEST(line.at(name).is_null(), name);
}

BOOST_AUTO_TEST_CASE(numbers_that_json_does_not_know) {
  auto x = summary();
  x.train_loss = not_a_number;
  x.test_loss = infinity;
  x.samples_per_second = -infinity;
  x.test_accuracy = not_a_number;
  x.coefficients = {1.0, not_a_number};
  const auto line = json::parse(to_json(x));
  for (const char* name : {"train_loss", "test_loss", "samples_per_second", "test_accuracy"})
    BOOST_TEST(line.at(name).is_null(), name);
  BOOST_TEST(line.at("coefficients")[0] == 1.0);
  BOOST_TEST(line.at("coefficients")[1].is_null());
}

BOOST_AUTO_TEST_CASE(texts_that_are_not_utf8) {
  // A failure may mention a file name, which may contain invalid UTF-8. The line must still be
  // valid JSON.
  auto x = summary();
  x.failure = "cannot read Gr\xf6\xdf"
              "en.csv";
  const auto line = json::parse(to_json(x));
  BOOST_TEST(line.at("failure").get<std::string>().starts_with("cannot read Gr"));
}

BOOST_AUTO_TEST_CASE(an_epoch) {
  epoch_report x;
  x.epoch = 3;
  x.epochs = 10;
  x.seconds = 2.5;
  x.samples_per_second = 1000;
  x.train_loss = not_a_number;
  x.test_loss = 0.5;
  const auto without = json::parse(to_json(x));
  BOOST_TEST(without.at("event") == "epoch");
  BOOST_TEST(without.at("epoch") == 3);
  BOOST_TEST(without.at("epochs") == 10);
  BOOST_TEST(without.at("seconds") == 2.5);
  BOOST_TEST(without.at("samples_per_second") == 1000.0);
  BOOST_TEST(without.at("train_loss").is_null());
  BOOST_TEST(without.at("test_loss") == 0.5);
  BOOST_TEST(!without.contains("test_accuracy"));
  x.test_accuracy = 0.25;
  BOOST_TEST(json::parse(to_json(x)).at("test_accuracy") == 0.25);
}

BOOST_AUTO_TEST_CASE(an_evaluation_of_validation_records) {
  epoch_report x{2, 3, 1.5, 100, 0.5, 0.25, 0.75, {}};
  x.validation = true;
  x.step = 40;
  x.epochs_trained = 1.25;
  const json expected{{"event", "evaluation"},
                      {"step", 40},
                      {"epoch", 2},
                      {"epochs", 3},
                      {"epochs_trained", 1.25},
                      {"seconds", 1.5},
                      {"samples_per_second", 100.0},
                      {"train_loss", 0.5},
                      {"validation_loss", 0.25},
                      {"validation_accuracy", 0.75}};
  BOOST_TEST(json::parse(to_json(x)) == expected);
  auto end = summary();
  BOOST_TEST(!json::parse(to_json(end)).contains("validation_loss"));
  end.validation_loss = 0.5;
  end.validation_accuracy = 0.25;
  BOOST_TEST(json::parse(to_json(end)).at("validation_loss") == 0.5);
  BOOST_TEST(json::parse(to_json(end)).at("validation_accuracy") == 0.25);
}

BOOST_AUTO_TEST_CASE(progress) {
  run_progress x;
  x.seconds = 2.5;
  x.epoch = 3;
  x.samples = 100;
  x.train_loss = 0.5;
  x.samples_per_second = 1000;
  x.updates = 7;
  x.updates_per_second = 3.5;
  x.quarantined = 2;
  x.staleness_mean = 1.5;
  x.learning_rate = 0.05;
  const json expected{
    {"event", "progress"}, {"seconds", 2.5},        {"epoch", 3},
    {"samples", 100},      {"train_loss", 0.5},     {"samples_per_second", 1000.0},
    {"updates", 7},        {"staleness_mean", 1.5}, {"updates_per_second", 3.5},
    {"quarantined", 2},    {"learning_rate", 0.05},
  };
  BOOST_TEST(json::parse(to_json(x)) == expected);
  x.gradient_norm = 0.75;
  BOOST_TEST(json::parse(to_json(x)).at("gradient_norm") == 0.75);
  BOOST_TEST(!json::parse(to_json(x)).contains("limited"));
  x.pacing = pacing_status{3, 0.5, 0.25, 2, 0, 11};
  BOOST_TEST(json::parse(to_json(x)).at("limited") == 11);
  BOOST_TEST(json::parse(to_json(x)).at("rate_damping") == 0.25);
  x.samples = 0;
  BOOST_TEST(json::parse(to_json(x)).at("train_loss").is_null(), "none is known yet");
}

BOOST_AUTO_TEST_SUITE_END()
