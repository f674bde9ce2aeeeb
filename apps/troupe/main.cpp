#include "apps/troupe/commands.hpp"
#include "apps/troupe/session.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <exception>

namespace {

constexpr auto set_help =
  "Changes a field of the job, as in optimizer.momentum=0.8; may be repeated";

void add_node(CLI::App& app, troupe::node_command& x) {
  auto* sub = app.add_subcommand("node", "Run one task of a cluster");
  sub->add_option("--role", x.role, "coordinator, ps, worker or ring")->required();
  sub->add_option("--task", x.task, "Index of the task within its job")->capture_default_str();
  sub->add_option("--cluster", x.cluster, "Cluster file: a ClusterSpec in JSON")->required();
  sub->add_option("--job", x.job,
                  "Job file; the coordinator's counts, others are compared with it");
  sub->add_option("--out", x.out, "Output directory (coordinator); overrides the job's");
  sub->add_option("--set", x.overrides, set_help)->allow_extra_args(false);
  sub->add_flag("--insecure", x.insecure,
                "Listen on addresses other than loopback, without encryption");
  sub->add_option("--ends-with-parent", x.parent)->group("");
}

void add_train(CLI::App& app, troupe::train_command& x) {
  auto* sub = app.add_subcommand("train", "Run a whole cluster on this host");
  sub->add_option("--job", x.job, "Job file")->required();
  sub->add_option("--workers", x.workers, "Number of workers")->capture_default_str();
  sub->add_option("--ps", x.ps, "Number of parameter shards (default: 1, with ring 0)");
  sub->add_option("--protocol", x.protocol, "async_ps, sync_ps or ring; overrides the job's");
  sub->add_flag("--processes", x.processes, "One process per task, connected through loopback");
  sub->add_option("--out", x.out, "Output directory; overrides the job's");
  sub->add_option("--set", x.overrides, set_help)->allow_extra_args(false);
}

} // namespace

int main(int argc, char** argv) {
  troupe::block_stop_signals();
  CLI::App app{"troupe trains a model on many machines with actors"};
  app.set_version_flag("--version", std::string{"troupe "} + troupe::version());
  app.require_subcommand(1);
  troupe::node_command node;
  troupe::train_command train;
  add_node(app, node);
  add_train(app, train);
  try {
    app.parse(argc, argv);
    return app.got_subcommand("node") ? troupe::run(node) : troupe::run(train);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? troupe::exit_done : troupe::exit_bad_input;
  } catch (const troupe::input_error& error) {
    fmt::print(stderr, "troupe: {}\n", error.what());
    return troupe::exit_bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "troupe: {}\n", error.what());
    return troupe::exit_failed;
  }
}
