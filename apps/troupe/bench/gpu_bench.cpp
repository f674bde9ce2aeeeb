#include "apps/troupe/bench/gpu_bench.hpp"

#include "kernels/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::bench {

namespace {

constexpr std::array<std::string_view, 4> all_measures{"memory", "products", "training", "workers"};

/// The error of a GPU that has failed; empty if it works. A GPU that has failed reports its error
/// in each later call.
std::string failure_of(cuda::device& gpu) {
  try {
    gpu.enter();
    gpu.synchronize(gpu.main_stream());
    return {};
  } catch (const device_error& error) {
    return error.what();
  }
}

} // namespace

std::span<const std::string_view> gpu_measures() {
  return all_measures;
}

std::vector<std::string> gpu_results::faults() const {
  std::vector<std::string> result;
  const auto add = [&](std::string_view what, const std::string& fault) {
    if (!fault.empty())
      result.push_back(fmt::format("{}: {}", what, fault));
  };
  if (!failure.empty())
    result.push_back(failure);
  for (const auto& x : memory)
    add(x.what, x.fault);
  for (const auto& x : layers)
    add(fmt::format("dense layer {} x {} x {}, {}", x.size.m, x.size.n, x.size.k,
                    to_string(x.size.precision)),
        x.fault);
  for (const auto& x : training) {
    add(x.what.what.name, x.fault);
    for (const auto& peer : x.peers)
      add(fmt::format("{}, {}", x.what.what.name, peer.mode), peer.fault);
  }
  for (const auto& x : workers)
    add(fmt::format("{}, {} workers", x.work, x.workers), x.fault);
  return result;
}

gpu_results run_gpu_bench(const device_opener& open, const gpu_bench_options& options) {
  for (const auto& x : options.measures)
    if (std::ranges::find(all_measures, x) == all_measures.end())
      throw input_error{fmt::format("--measure={}: there is no such measure; known are {}", x,
                                    fmt::join(all_measures, ", "))};
  gpu_results result;
  counted_device gpu(open(options.device));
  result.device = gpu.name();
  result.rounds = options.how.rounds;
  const auto part = [&](std::string_view measure, std::string_view what, auto f) {
    const bool chosen = options.measures.empty()
      || std::ranges::find(options.measures, measure) != options.measures.end();
    if (!chosen || !result.failure.empty())
      return;
    try {
      gpu.enter();
      f();
    } catch (const device_error& error) {
      result.missing.push_back(fmt::format("{}: {}", what, error.what()));
    }
    if (const auto error = failure_of(gpu); !error.empty())
      result.failure = fmt::format("{}: the GPU has failed: {}", what, error);
  };
  part("memory", "memory", [&] { result.memory = measure_memory(gpu, options, result.missing); });
  part("products", "products",
       [&] { result.layers = measure_layers(gpu, options, result.missing); });
  for (const auto& x : options.works)
    part("training", x.what.name,
         [&] { result.training.push_back(measure_training(gpu, x, options)); });
  // Only the first work (a model with its batch) is measured with two workers. With any other work,
  // one worker already keeps a GPU busy.
  if (!options.works.empty())
    part("workers", "workers on one GPU",
         [&] { result.workers.push_back(measure_workers(open, options.works.front(), options)); });
  return result;
}

} // namespace troupe::bench
