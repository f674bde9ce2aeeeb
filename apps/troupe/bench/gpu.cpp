#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "kernels/devices/device_error.hpp"
#include "kernels/error.hpp"

#ifdef TROUPE_HAS_CUDA
#include "apps/troupe/bench/gpu_report.hpp"
#include "apps/troupe/bench/torch_peer.hpp"
#endif

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace troupe {

#ifdef TROUPE_HAS_CUDA

namespace {

using namespace bench;

/// PyTorch as a peer on the same GPU.
class torch_on_gpu final : public training_peer {
public:
  torch_on_gpu(const std::string& python, const gpu_work& what, const material& data,
               const torch_options& options)
    : peer_(python, what.what, data, options) {}

  std::string name() const override { return "PyTorch " + peer_.version(); }
  round run(std::size_t steps) override { return peer_.run(steps); }

private:
  torch_peer peer_;
};

std::vector<gpu_work> chosen_gpu_works(const std::vector<std::string>& names) {
  std::vector<gpu_work> result;
  std::string known;
  for (const auto& x : gpu_works())
    known += (known.empty() ? "" : ", ") + std::string{x.what.name};
  for (const auto& name : names)
    if (std::ranges::none_of(gpu_works(), [&](const auto& x) { return x.what.name == name; }))
      throw input_error{fmt::format("--work={}: there is no such work; known are {}", name, known)};
  for (const auto& x : gpu_works())
    if (names.empty() || std::ranges::find(names, x.what.name) != names.end())
      result.push_back(x);
  return result;
}

void run_together(std::span<const std::function<void()>> all) {
  std::vector<std::exception_ptr> errors(all.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < all.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          all[i]();
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
  }
  for (const auto& x : errors)
    if (x)
      std::rethrow_exception(x);
}

gpu_bench_options options_of(const bench_gpu_command& x) {
  gpu_bench_options result;
  result.device = x.device;
  result.measures = x.measures;
  result.how.rounds = x.rounds;
  result.how.seconds = x.seconds;
  result.works = chosen_gpu_works(x.works);
  result.together = run_together;
  result.threads = std::max(std::thread::hardware_concurrency(), 1U);
  if (x.peer.empty())
    return result;
  result.peer_modes = x.peer_modes;
  if (result.peer_modes.empty())
    result.peer_modes = {"eager", "graph", "compile"};
  result.make_peer = [&x](const gpu_work& what, const material& data, const std::string& mode) {
    torch_options how;
    how.device = "cuda:" + std::to_string(x.device);
    how.mode = mode;
    how.precision = what.precision;
    try {
      return std::make_unique<torch_on_gpu>(x.python, what, data, how);
    } catch (const torch_unavailable& error) {
      throw peer_unavailable{error.what()};
    }
  };
  return result;
}

/// Starts the peer and ends it again, to check that it can run. Without this check, the user would
/// learn of a problem only after minutes of measurements. Throws input_error, or device_error if
/// there is no GPU.
void check_peer(const gpu_bench_options& options) {
  cuda::open_device(options.device);
  const auto& what = gpu_works().front();
  const material data(what.what);
  options.make_peer(what, data, "eager");
}

} // namespace

int run(const bench_gpu_command& x) {
  if (!x.peer.empty() && x.peer != "torch")
    throw input_error{"--peer=" + x.peer + ": expected torch"};
  if (x.rounds == 0)
    throw input_error{"--rounds must be at least 1"};
  const auto options = options_of(x);
  if (options.make_peer)
    check_peer(options);
  const auto results = run_gpu_bench(cuda::open_device, options);
  fmt::print("{}\n", x.json ? gpu_json(results) : gpu_tables(results));
  const auto faults = results.faults();
  for (const auto& fault : faults)
    fmt::print(stderr, "troupe: {}\n", fault);
  return faults.empty() ? exit_done : exit_failed;
}

#else

int run(const bench_gpu_command&) {
  throw device_error("this program was built without CUDA, so it has no code for GPUs: build it on "
                     "a machine with the CUDA toolkit (TROUPE_CUDA=ON)");
}

#endif

} // namespace troupe
