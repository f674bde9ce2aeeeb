#pragma once

#include "apps/troupe/commands.hpp"

#include <functional>

namespace CLI {
class App;
}

namespace troupe {

/// The commands below `troupe bench`.
struct bench_commands {
  bench_train_command train;
  bench_kernels_command kernels;
  bench_gpu_command gpu;
  bench_async_command async;
  bench_allreduce_command allreduce;
  bench_ps_command ps;
  bench_cluster_command cluster;
};

/// Adds `bench` and its commands to the command line. Parsing fills the struct, and sets `action`
/// to run the chosen command. The arguments must live as long as `action`.
void add_bench(CLI::App& app, bench_commands& x, std::function<int()>& action);

} // namespace troupe
