#include "tests/actors/cluster/ways.hpp"

#include "actors/cluster/local_cluster.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/problem_list.hpp"
#include "actors/model/sha256.hpp"
#include "messages/configure.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <string>

#include <sys/wait.h>

namespace troupe::test {

namespace {

constexpr std::chrono::minutes patience_limit{4};

run_summary parse_end(const std::filesystem::path& metrics) {
  run_summary result;
  std::ifstream in{metrics};
  std::string last;
  for (std::string line; std::getline(in, line);)
    last = line;
  if (last.empty()) {
    result.failure = "no metrics were written";
    return result;
  }
  const auto x = nlohmann::json::parse(last);
  result.failure = x.value("failure", "");
  result.samples = x.at("samples");
  if (x.at("applied").is_null())
    return result; // a failed run lacks the following results
  result.train_loss = x.at("train_loss");
  result.test_loss = x.at("test_loss");
  if (!x.at("test_accuracy").is_null())
    result.test_accuracy = x.at("test_accuracy").get<double>();
  result.applied = x.at("applied");
  result.rejected_stale = x.at("rejected_stale");
  result.requeued = x.at("requeued");
  result.lost = x.at("lost");
  result.quarantined = x.at("quarantined");
  result.split = x.at("split");
  result.weights_sha256 = x.at("weights_sha256");
  if (x.contains("coefficients"))
    result.coefficients = x.at("coefficients").get<std::vector<double>>();
  return result;
}

} // namespace

const std::vector<proto::Protocol> all_protocols = [] {
  std::vector<proto::Protocol> result;
  proto::Job job;
  job.mutable_optimizer()->set_kind(proto::MOMENTUM);
  for (auto& x : builtin_traits()) {
    problem_list problems;
    job.set_protocol(x.id);
    check_protocol(job, {}, problems);
    if (problems.empty())
      result.push_back(x.id);
  }
  return result;
}();

const protocol_traits& traits_of(proto::Protocol x) {
  proto::Job job;
  job.set_protocol(x);
  return troupe::traits_of(job);
}

std::vector<std::string> equal_after_every_step(proto::Protocol x) {
  const auto& row = traits_of(x);
  return row.steps_between_waits ? std::vector{row.settings + ".every=1"}
                                 : std::vector<std::string>{};
}

std::ostream& operator<<(std::ostream& out, way x) {
  switch (x) {
  case way::here:
    return out << "one actor system";
  case way::simulated:
    return out << "simulated links";
  default:
    return out << "processes";
  }
}

run_summary train_here(const proto::Job& job, std::uint32_t workers, std::uint32_t ps) {
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  std::promise<run_summary> ended;
  caf::actor_system sys{cfg};
  coordinator_setup setup;
  setup.data = build_data(job);
  setup.context = make_job_context(job, shape_of(*setup.data.train));
  auto options = local_cluster(std::move(setup), workers, ps);
  options.on_end = [&](const run_summary& x) { ended.set_value(x); };
  auto node = sys.spawn<cluster_node>(std::move(options));
  caf::anon_send(node, begin_node{});
  auto result = ended.get_future();
  if (result.wait_for(patience_limit) == std::future_status::ready)
    return result.get();
  caf::anon_send(node, crash_node{});
  run_summary late;
  late.failure = "the run did not end";
  return late;
}

run_summary train_in_processes(const proto::Job& job, std::uint32_t workers, std::uint32_t ps) {
  const temporary_directory folder;
  std::ofstream{folder / "job.textproto"} << job.DebugString();
  const auto command = std::string{TROUPE_PROGRAM}
    + " train --processes --job=" + (folder / "job.textproto").string()
    + " --out=" + (folder / "out").string() + " --workers=" + std::to_string(workers)
    + " --ps=" + std::to_string(ps) + " >" + (folder / "log").string() + " 2>&1";
  const auto status = std::system(command.c_str());
  auto result = parse_end(folder / "out" / "metrics.jsonl");
  if (status != 0 && result.failure.empty())
    result.failure = "exit code " + std::to_string(WEXITSTATUS(status));
  if (!result.failure.empty()) {
    std::ifstream log{folder / "log"};
    result.failure += "\n" + std::string{std::istreambuf_iterator<char>{log}, {}};
  }
  return result;
}

simulation_options simulated(const proto::Job& job, std::size_t workers, std::size_t ps,
                             std::uint64_t seed) {
  simulation_options result;
  result.seed = seed;
  result.job = job;
  result.data = build_data(job);
  result.workers = workers;
  result.ps = ps;
  // Two ranks need only one exchange per step, so steps would take almost no simulated time. They
  // take 1 ms here. Otherwise, checkpoints would be skipped while earlier ones are still being
  // written.
  if (workers == 2 && ps == 0)
    result.gradient_done = [](std::size_t, std::chrono::nanoseconds now) {
      return now + std::chrono::milliseconds{1};
    };
  return result;
}

void check_equals_serial(const proto::Job& job) {
  serial_training loop{job};
  loop.train();
  const auto expected = sha256_hex(std::span<const float>{loop.weights()});
  for (const std::size_t ps : {1, 3})
    BOOST_TEST_CONTEXT(proto::Protocol_Name(job.protocol())
                       << ", optimizer " << proto::OptimizerKind_Name(job.optimizer().kind())
                       << ", " << ps) {
      const auto result = simulate(simulated(job, 1, ps)).summary;
      BOOST_TEST(result.failure == "");
      BOOST_TEST(result.weights_sha256 == expected);
    }
}

run_summary train(way how, const proto::Job& job, std::uint32_t workers, std::uint32_t ps) {
  switch (how) {
  case way::here:
    return train_here(job, workers, ps);
  case way::simulated:
    return simulate(simulated(job, workers, ps)).summary;
  default:
    return train_in_processes(job, workers, ps);
  }
}

} // namespace troupe::test
