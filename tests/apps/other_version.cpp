// A node that claims to be another version of troupe. It is worker/0 of the cluster whose
// coordinator listens at the given address. It prints why it ended. If the coordinator refused it,
// it exits with 1, like `troupe node`.

#include "actors/cluster/basp_transport.hpp"
#include "actors/cluster/cluster_node.hpp"
#include "messages/configure.hpp"

#include <caf/io/all.hpp>

#include <cstdio>
#include <future>

using namespace troupe;

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  caf::actor_system_config cfg;
  configure(cfg);
  tune(cfg);
  cfg.load<caf::io::middleman>();
  std::promise<run_summary> ended;
  caf::actor_system sys{cfg};
  node_options options;
  options.tasks = {{job_kind::worker, 0}};
  options.incarnation = 12345;
  options.version = "0.0.0-other";
  options.coordinator_address = argv[1];
  options.source = build_data;
  options.net = std::make_shared<basp_transport>(sys);
  options.on_end = [&](const run_summary& x) { ended.set_value(x); };
  caf::anon_send(sys.spawn<cluster_node>(std::move(options)), begin_node{"127.0.0.1:0"});
  const auto failure = ended.get_future().get().failure;
  std::puts(failure.c_str());
  return failure.empty() ? 0 : 1;
}
