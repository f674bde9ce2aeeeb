#pragma once

#include "apps/troupe/bench/counted_device.hpp"
#include "apps/troupe/bench/gpu_timing.hpp"
#include "apps/troupe/bench/gpu_works.hpp"
#include "apps/troupe/bench/runner.hpp"
#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

// `troupe bench gpu` measures parts of training on a GPU, relative to the limits of the GPU, and
// whole training steps, relative to PyTorch. The GPU measures the times, between two of its events.
// Only the times of workers that share the GPU are measured on the host. The functions take an
// opened device, so that tests can run them on a simulated device, in small sizes.

/// Opens a GPU by its number. Throws device_error.
using device_opener = std::function<std::unique_ptr<cuda::device>(std::size_t)>;

/// The size of a dense layer: input (m, k), weights (n, k), result (m, n). `after` is the
/// activation.
struct layer_size {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  dtype precision = dtype::float32;
  operation after = operation::end;
};

/// The sizes of the measured work. The default values are large enough to keep a GPU busy. The
/// tests use smaller sizes.
struct gpu_sizes {
  /// Number of parameters in an update.
  std::size_t parameters = std::size_t{256} << 20;
  /// Numbers of elements and columns in the matrices for element-wise operations, losses and
  /// normalizations.
  std::size_t elements = std::size_t{64} << 20;
  std::size_t columns = 1024;
  /// Number of elements of a plain copy.
  std::size_t copied = std::size_t{256} << 20;
  /// The values of inputs repeat after this many elements.
  std::size_t pattern = std::size_t{1} << 20;
  /// Matrix products alternate between several sets of matrices, so that the matrices of a product
  /// are not in a cache. This is the size of all sets together, in bytes. It is larger than any
  /// cache of a GPU.
  std::size_t rotated_bytes = std::size_t{512} << 20;
  std::vector<layer_size> layers = {
    {4096, 4096, 4096, dtype::float32, operation::relu},
    {4096, 4096, 4096, dtype::bfloat16, operation::relu},
    {4096, 4096, 4096, dtype::float16, operation::relu},
    {8192, 768, 3072, dtype::bfloat16, operation::end},
    {8192, 3072, 768, dtype::bfloat16, operation::gelu},
  };
};

/// Another program, such as PyTorch, that trains the same models. A mode is a way in which the
/// program runs, such as "eager".
class training_peer {
public:
  /// The losses of the first steps are compared, up to this number of steps.
  static constexpr std::size_t compared_steps = 10;

  training_peer() = default;
  training_peer(const training_peer&) = delete;
  training_peer& operator=(const training_peer&) = delete;
  virtual ~training_peer() = default;

  virtual std::string name() const = 0;
  /// Makes this number of steps and returns how many seconds they took. If there are at most
  /// compared_steps, also returns the loss of each step.
  virtual round run(std::size_t steps) = 0;
};

/// Thrown if the peer cannot train a work in a mode. The text gives the reason.
struct peer_unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct gpu_bench_options {
  std::size_t device = 0;
  /// Names from gpu_measures(). If empty, all of them are measured.
  std::vector<std::string> measures;
  gpu_rounds how;
  gpu_sizes sizes;
  std::vector<gpu_work> works;
  std::vector<std::string> peer_modes;
  /// Starts a peer in this mode. Throws peer_unavailable.
  std::function<std::unique_ptr<training_peer>(const gpu_work&, const material&,
                                               const std::string& mode)>
    make_peer;
  /// Calls all functions, each on its own thread. Returns when all functions have returned.
  std::function<void(std::span<const std::function<void()>>)> together;
  /// Number of threads on the CPU that check results.
  std::size_t threads = 1;
};

/// The names of the measures (parts of the benchmark): "memory", "products", "training", "workers".
std::span<const std::string_view> gpu_measures();

// -- results. `fault` says which result is wrong; it is empty if all results are right.

/// The speed of work that is limited by the bandwidth of the GPU's memory.
struct memory_result {
  std::string what;
  std::size_t elements = 0;
  /// Number of bytes that one execution of the work must read and write, if it reads or writes each
  /// array once.
  double bytes = 0;
  statistics seconds{{0}};
  /// Bytes per second of a plain copy, measured in the same rounds.
  double copy_speed = 0;
  /// The expected value of ratio().
  double goal = 0;
  std::string fault = {};

  double speed() const { return bytes / seconds.median; }
  double ratio() const { return speed() / copy_speed; }
};

/// The time of a dense layer, compared with the time that its matrix product takes alone.
struct layer_result {
  layer_size size;
  statistics seconds{{0}};
  statistics product_seconds{{0}};
  /// True if the product also adds the bias or computes the activation (an epilogue).
  bool fused = false;
  double goal = 0;
  std::string fault = {};

  double flop() const {
    return 2.0 * static_cast<double>(size.m) * static_cast<double>(size.n)
      * static_cast<double>(size.k);
  }
  double ratio() const { return product_seconds.median / seconds.median; }
};

/// The speed of training steps, compared with that of a peer, in samples per second.
struct peer_result {
  std::string mode;
  std::string name;
  statistics ours{{0}};
  statistics theirs{{0}};
  /// The largest difference between the losses of troupe and of the peer, relative to the first
  /// loss.
  double difference = 0;
  double goal = 0;
  std::string fault = {};
  /// The reason why there are no figures. Empty if there are figures.
  std::string unavailable = {};

  double ratio() const { return ours.median / theirs.median; }
};

struct training_result {
  gpu_work what;
  /// Samples per second.
  statistics speed{{0}};
  /// Number of steps in a round.
  std::size_t steps = 0;
  double first_loss = 0;
  double last_loss = 0;
  /// The calls to the device in all rounds together. Calls in the first steps, before the rounds,
  /// are not counted.
  device_counts counts;
  /// The largest difference from the losses on the CPU, relative to the first loss.
  double difference = 0;
  std::string fault = {};
  std::vector<peer_result> peers;
};

/// Samples per second of all workers that share a GPU, compared with a single worker.
struct workers_result {
  std::string work;
  std::size_t workers = 0;
  statistics one{{0}};
  statistics all{{0}};
  double goal = 0;
  std::string fault = {};

  double ratio() const { return all.median / one.median; }
};

struct gpu_results {
  std::string device;
  std::size_t rounds = 0;
  std::vector<memory_result> memory;
  std::vector<layer_result> layers;
  std::vector<training_result> training;
  std::vector<workers_result> workers;
  /// The measures without results, each with the reason.
  std::vector<std::string> missing;
  /// Set if the GPU itself has failed: the last part that began, and the error. Nothing was
  /// measured after it.
  std::string failure;

  /// The faults of all results, each with the name of its measure.
  std::vector<std::string> faults() const;
};

/// Opens the GPU and measures. If the GPU cannot compute a part, or its memory is too small, this
/// part is listed in gpu_results::missing. Throws device_error if the GPU cannot be opened, and
/// input_error for unknown names.
gpu_results run_gpu_bench(const device_opener& open, const gpu_bench_options& options);

// -- the measures

/// Measures updates of SGD with momentum and of AdamW, chains of element-wise operations, losses
/// and normalizations. Parts that cannot be measured are added to `missing` (see gpu_results).
std::vector<memory_result> measure_memory(cuda::device& gpu, const gpu_bench_options& options,
                                          std::vector<std::string>& missing);
std::vector<layer_result> measure_layers(cuda::device& gpu, const gpu_bench_options& options,
                                         std::vector<std::string>& missing);
training_result measure_training(counted_device& gpu, const gpu_work& what,
                                 const gpu_bench_options& options);
/// Measures two workers that share the GPU, as in a job: each worker copies weights from the host
/// and gradients to the host.
workers_result measure_workers(const device_opener& open, const gpu_work& what,
                               const gpu_bench_options& options);

} // namespace troupe::bench
