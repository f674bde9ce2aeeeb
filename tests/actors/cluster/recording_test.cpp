#include "actors/cluster/local_cluster.hpp"
#include "actors/coordinator/progress.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/sha256.hpp"
#include "kernels/formats/gzip.hpp"
#include "messages/configure.hpp"
#include "tests/support/input_errors.hpp"

#include <nlohmann/json.hpp>

#include <future>
#include <limits>
#include <set>
#include <sstream>
#include <system_error>

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

// Tests which files a run leaves behind if a disk operation fails.

namespace {

constexpr auto job_text = R"(
  name: "recorded"
  model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
  data { digits { train: 320 test: 50 } batch: 16 }
  learning_rate { base: 0.1 }
  epochs: 2
)";

/// Storage in memory. Operations number `first` to `first + count - 1`, counted from 0, fail; all
/// others work.
class failing_storage : public memory_storage {
public:
  failing_storage(std::size_t first, std::size_t count) : first_(first), count_(count) {}

  void replace(const std::filesystem::path& file, std::span<const std::byte> contents) override {
    operate(file);
    memory_storage::replace(file, contents);
  }
  void append(const std::filesystem::path& file, std::span<const std::byte> contents) override {
    operate(file);
    memory_storage::append(file, contents);
  }

  std::size_t failures() const { return failures_; }

private:
  void operate(const std::filesystem::path& file) {
    const auto operation = operations_++;
    if (operation < first_ || operation - first_ >= count_)
      return;
    ++failures_;
    throw std::system_error{ENOSPC, std::generic_category(), "cannot write " + file.string()};
  }

  std::size_t first_;
  std::size_t count_;
  std::size_t operations_ = 0;
  std::size_t failures_ = 0;
};

class listener_double : public conclusion_listener::base {
public:
  using conclusion_listener::base::base;

protected:
  behavior_type make_behavior() override {
    return {[](const run_over&) {}, [](const end_run&) {}};
  }
};

/// Ends a run, and delivers the evaluation of an epoch after `steps` more steps of the scheduler.
/// Returns the events in metrics.jsonl, and whether the run was over before the evaluation came.
std::pair<std::vector<std::string>, bool> late_epoch(std::size_t steps) {
  caf::actor_system_config cfg;
  configure(cfg);
  cfg.set("scheduler.policy", caf::atom("testing"));
  caf::actor_system sys{cfg};
  auto& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler());
  const auto job = parse_job(job_text, "job");
  const auto files = std::make_shared<memory_storage>();
  progress_options options;
  options.context = make_job_context(job, shape_of(*build_data(job).train));
  options.output = "out";
  options.files = files;
  options.spawner = spawner{spawner::kind::cooperative};
  const auto listener = sys.spawn<listener_double>();
  options.listener = listener;
  const auto subject = sys.spawn<progress>(std::move(options));
  conclude_run end;
  end.summary.failure = "stopped";
  caf::anon_send(subject, end);
  std::size_t done = 0;
  while (done < steps && scheduler.try_run_once())
    ++done;
  epoch_report late;
  late.epoch = 2;
  caf::anon_send(subject, late);
  scheduler.run();
  std::vector<std::string> events;
  const auto bytes = files->read("out/metrics.jsonl");
  std::istringstream lines{std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
  for (std::string line; std::getline(lines, line);)
    events.push_back(json::parse(line).at("event"));
  caf::anon_send_exit(subject, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
  scheduler.run();
  scheduler.clock().cancel_all();
  return {events, done < steps};
}

run_summary train(std::shared_ptr<storage> files, bool stop = false) {
  caf::actor_system_config cfg;
  configure(cfg);
  std::promise<run_summary> ended;
  caf::actor_system sys{cfg};
  auto job = parse_job(job_text, "job");
  if (stop)
    job.set_epochs(1'000'000);
  coordinator_setup setup;
  setup.data = build_data(job);
  setup.context = make_job_context(job, shape_of(*setup.data.train));
  setup.output = "out";
  setup.files = std::move(files);
  setup.origin = {"a host", std::chrono::system_clock::time_point{std::chrono::seconds{7}}};
  auto options = local_cluster(std::move(setup), 1, 1);
  options.on_end = [&](const run_summary& x) { ended.set_value(x); };
  auto node = sys.spawn<cluster_node>(std::move(options));
  caf::anon_send(node, begin_node{});
  if (stop)
    caf::anon_send(node, stop_run{"enough"});
  auto result = ended.get_future();
  if (result.wait_for(std::chrono::minutes{4}) == std::future_status::ready)
    return result.get();
  caf::anon_send(node, crash_node{});
  run_summary late;
  late.failure = "the run did not end";
  return late;
}

std::vector<json> lines_of(const memory_storage& disk) {
  std::vector<json> result;
  std::istringstream in{disk.contents("out/metrics.jsonl")};
  for (std::string line; std::getline(in, line);)
    result.push_back(json::parse(line));
  return result;
}

/// Checks weights.safetensors. If it does not contain the final weights, the summary must say what
/// it contains.
void check_weights_file(const memory_storage& disk, const run_summary& summary) {
  const auto file = disk.contents("out/weights.safetensors");
  if (file.empty()) {
    BOOST_TEST(summary.weights_file == "no weights of this run");
    return;
  }
  const auto job = parse_job(job_text, "job");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto model = read_model(bytes_of(file), context->parameters(), "weights.safetensors");
  if (sha256_hex(model.weights) == summary.weights_sha256)
    BOOST_TEST(summary.weights_file == "");
  else
    BOOST_TEST(summary.weights_file
               == "the weights of epoch 1 (version " + std::to_string(model.info.version) + ")");
}

const std::set<std::filesystem::path> all_files{
  "out/metrics.jsonl", "out/events.out.tfevents.7.a_host", "out/weights.safetensors",
  "out/report.html", "out/timeline.json.gz"};

} // namespace

BOOST_AUTO_TEST_SUITE(recording)

BOOST_AUTO_TEST_CASE(what_a_run_leaves_behind) {
  const auto files = std::make_shared<failing_storage>(0, 0);
  const auto summary = train(files);
  BOOST_REQUIRE(summary.failure == "");
  std::set<std::filesystem::path> names;
  for (auto& [name, contents] : files->files()) {
    names.insert(name);
    BOOST_TEST(!contents.empty(), name);
  }
  BOOST_TEST((names == all_files));
  const auto lines = lines_of(*files);
  std::vector<std::string> events;
  for (auto& x : lines)
    if (x.at("event") != "progress")
      events.push_back(x.at("event"));
  BOOST_TEST((events == std::vector<std::string>{"epoch", "epoch", "end"}));
  const auto page = files->contents("out/report.html");
  BOOST_TEST(contains(page, "recorded"));
  BOOST_TEST(contains(page, "units: 10"));
  BOOST_TEST(contains(page, summary.weights_sha256));
  const auto timeline =
    gunzip(bytes_of(files->contents("out/timeline.json.gz")), 1 << 20, "timeline.json.gz");
  const auto* text = reinterpret_cast<const char*>(timeline.data());
  const auto trace = json::parse(text, text + timeline.size()).at("traceEvents");
  BOOST_TEST(std::ranges::count_if(trace,
                                   [](const json& x) {
                                     return x.at("name").get<std::string>().starts_with(
                                       "epoch 2 evaluated: loss ");
                                   })
             == 1);
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_ends_no_run) {
  const auto expected = train(std::make_shared<failing_storage>(0, 0)).weights_sha256;
  // Either only operation number `first` fails, or all operations from there on. The number of
  // operations depends on how long the run takes. So the loop tries first = 0, 1, 2, ... until no
  // operation fails.
  for (const std::size_t count : {std::size_t{1}, std::numeric_limits<std::size_t>::max()}) {
    std::size_t first = 0;
    for (; first < 100; ++first) {
      const auto files = std::make_shared<failing_storage>(first, count);
      const auto summary = train(files);
      if (files->failures() == 0) {
        BOOST_TEST(summary.failure == "");
        break;
      }
      BOOST_TEST_CONTEXT("operation " << first << ", " << count << " times") {
        BOOST_TEST(summary.failure.starts_with("not everything was written: cannot write out/"));
        BOOST_TEST(summary.samples == 640u);
        BOOST_TEST(summary.weights_sha256 == expected);
        BOOST_TEST(contains(summary.failure, summary.unwritten));
        check_weights_file(*files, summary);
        // Every line that was written is complete.
        BOOST_TEST(lines_of(*files).size() <= 30u);
      }
    }
    // A run has at least 10 disk operations: it creates each file, writes a line and the weights
    // after each epoch, and writes the last line.
    BOOST_TEST(first >= 10u);
    BOOST_TEST(first < 100u);
  }
}

BOOST_AUTO_TEST_CASE(runs_that_fail_leave_a_report) {
  const auto files = std::make_shared<failing_storage>(0, 0);
  const auto summary = train(files, true);
  BOOST_TEST_REQUIRE(summary.failure == "enough");
  BOOST_TEST(contains(files->contents("out/report.html"), "state stopped"));
  BOOST_TEST(lines_of(*files).back().at("failure") == summary.failure);
}

BOOST_AUTO_TEST_CASE(the_end_of_a_run_is_its_last_record) {
  const std::vector<std::string> both{"epoch", "end"};
  const std::vector<std::string> end{"end"};
  std::size_t recorded = 0;
  std::size_t left_out = 0;
  bool over = false;
  for (std::size_t steps = 0; !over; ++steps) {
    const auto [events, was_over] = late_epoch(steps);
    over = was_over;
    BOOST_TEST_CONTEXT("an epoch " << steps << " steps late") {
      BOOST_TEST((events == both || events == end), nlohmann::json(events).dump());
    }
    ++(events == both ? recorded : left_out);
  }
  BOOST_TEST(recorded > 0);
  BOOST_TEST(left_out > 1);
}

BOOST_AUTO_TEST_SUITE_END()
