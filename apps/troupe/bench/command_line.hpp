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

/// Adds `bench` and its commands to the command line. Parsing fills `x`, and sets `action` to a
/// function that runs the chosen command. The caller must keep all three arguments as long as it
/// uses `action`.
void add_bench(CLI::App& app, bench_commands& x, std::function<int()>& action);

} // namespace troupe
