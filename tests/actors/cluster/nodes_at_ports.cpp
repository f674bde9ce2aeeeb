#include "tests/actors/cluster/nodes_at_ports.hpp"

#include "actors/cluster/basp_transport.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <caf/io/all.hpp>

#include <boost/test/unit_test.hpp>

#include <utility>

// For LeakSanitizer: ignores leaks in CAF's I/O library. If a message of an unknown program arrives
// while an actor system ends, CAF's broker may create a proxy for its sender. Broker and proxy
// refer to each other, so they are never freed.
extern "C" const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:libcaf_io\n";
}

namespace troupe::test {

namespace {

proto::Job job_of_test() {
  return example_job("digits_mlp",
                     {"data.digits={train: 640 test: 20}", "data.batch=16", "epochs=8",
                      "protocol=SYNC_PS", "model.layer[0].dense.units=16"});
}

/// Collects the notices that a run sends to its operator.
class listener : public run_observer::base {
public:
  listener(caf::actor_config& cfg, std::shared_ptr<std::vector<std::string>> notices,
           std::shared_ptr<std::mutex> mutex)
    : run_observer::base(cfg), notices_(std::move(notices)), mutex_(std::move(mutex)) {}

  behavior_type make_behavior() override {
    return {
      [](const run_progress&) {},
      [](const epoch_report&) {},
      [](const run_summary&) {},
      [this](const run_notice& x) {
        const std::lock_guard guard{*mutex_};
        notices_->push_back(x.text);
      },
    };
  }

private:
  std::shared_ptr<std::vector<std::string>> notices_;
  std::shared_ptr<std::mutex> mutex_;
};

} // namespace

process::process(const std::function<void(caf::actor_system_config&)>& change) {
  configure(cfg);
  tune(cfg);
  cfg.set("scheduler.max-threads", std::size_t{2});
  cfg.load<caf::io::middleman>();
  if (change)
    change(cfg);
  sys = std::make_unique<caf::actor_system>(cfg);
}

node_process::node_process(node_options how, bool with_channels)
  : observer(sys->spawn<listener>(notices, mutex)) {
  if (with_channels)
    channels = std::make_shared<channel_host>(*sys, channel_host_options{});
  how.links.channels = channels;
  how.spawner = spawner{spawner::kind::threads, channels};
  how.net = std::make_shared<basp_transport>(*sys);
  how.observer = observer;
  how.on_end = [this](const run_summary& x) { ended.set_value(x); };
  node = caf::actor_cast<caf::actor>(sys->spawn<cluster_node>(std::move(how)));
  port = basp_transport::listen(*sys, caf::actor_cast<caf::strong_actor_ptr>(node), "127.0.0.1", 0);
}

node_process::~node_process() {
  caf::anon_send(node, crash_node{});
  node = nullptr;
  caf::anon_send_exit(observer, caf::exit_reason::user_shutdown);
  observer = nullptr;
  if (channels)
    channels->stop();
}

std::string node_process::all_notices() {
  const std::lock_guard guard{*mutex};
  std::string result;
  for (auto& x : *notices)
    result += x + '\n';
  return result;
}

cluster::cluster(bool with_channels) {
  const auto job = job_of_test();
  coordinator_setup setup;
  setup.data = build_data(job);
  setup.context = make_job_context(job, shape_of(*setup.data.train));
  const std::vector<task_name> tasks{
    {job_kind::ps, 0}, {job_kind::worker, 0}, {job_kind::worker, 1}};
  for (auto& task : tasks)
    setup.tasks.push_back({task, "127.0.0.1:0"});
  node_options first;
  first.tasks = {coordinator_task};
  first.incarnation = 100;
  first.coordinator = std::move(setup);
  nodes.push_back(std::make_unique<node_process>(std::move(first), with_channels));
  for (auto& task : tasks) {
    node_options how;
    how.tasks = {task};
    how.incarnation = 100 + nodes.size();
    how.coordinator_address = "127.0.0.1:" + std::to_string(nodes[0]->port);
    how.source = build_data;
    nodes.push_back(std::make_unique<node_process>(std::move(how), with_channels));
  }
  end = nodes[0]->ended.get_future();
}

void cluster::begin() {
  for (auto& x : nodes)
    x->begin();
}

run_summary cluster::result() {
  BOOST_TEST_REQUIRE((end.wait_for(patience_limit) == std::future_status::ready));
  return end.get();
}

std::string undisturbed() {
  static const auto result = [] {
    cluster x{true};
    x.begin();
    const auto summary = x.result();
    BOOST_TEST(summary.failure == "");
    for (auto& node : x.nodes)
      BOOST_TEST(!contains(node->all_notices(), "refused"));
    return summary.weights_sha256;
  }();
  return result;
}

} // namespace troupe::test
