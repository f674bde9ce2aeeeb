#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/devices/device_error.hpp"
#include "kernels/devices/device_updater.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// Runs a plan on a device. All memory of the arguments and results is memory of the host. The
/// functions are the same as in troupe::executor; a GPU also throws device_error. One thread at a
/// time.
class device_executor {
public:
  device_executor() = default;
  device_executor(const device_executor&) = delete;
  device_executor& operator=(const device_executor&) = delete;
  virtual ~device_executor() = default;

  /// A GPU begins when all weights are available.
  virtual std::optional<run_result> advance(const run_arguments<float>& arguments) = 0;
  virtual void give_sums(std::span<const double> totals, std::size_t rows) = 0;
  virtual void restart() noexcept = 0;
  virtual std::string find_not_finite(const run_arguments<float>& arguments) = 0;
  virtual std::span<const float> fetched(std::size_t index) = 0;
  virtual const plan& what() const noexcept = 0;
  /// True if `advance` accepts the rows of this weight in several places (run_arguments::parts).
  virtual bool takes_rows(std::size_t) const { return false; }
  /// True if a run without weights (run_arguments::weights) uses those of the run before.
  virtual bool keeps_weights() const { return false; }

  /// Only for the executor of a device_replica. The runs that follow, without weights, use the
  /// newest weights of the replica. If a run has no gradient (run_arguments::gradient), the
  /// gradient stays on the device, and the result has its norm (run_result::squared_norm).
  virtual void take_weights() {}
  /// Copies that gradient to the host's memory, all elements, and waits.
  virtual void read_gradient(std::span<float>) {}
  /// Makes an element of that gradient not finite, and waits: a sum over replicas then shows that
  /// the gradient must be left out.
  virtual void spoil_gradient() {}
};

/// Runs a plan for the CPU with this number of threads. Throws input_error like troupe::executor.
std::unique_ptr<device_executor> make_cpu_executor(std::shared_ptr<const plan> what,
                                                   std::size_t threads);

/// Memory for work on a GPU, in bytes.
struct gpu_memory {
  /// Of the GPU.
  std::size_t device = 0;
  /// Page-locked memory of the host, for copies from and to the GPU.
  std::size_t pinned = 0;
};

/// How a GPU runs plans.
struct gpu_options {
  /// Products of float32 may round their operands to TF32.
  bool tf32 = false;
  /// For finding faults: instructions are launched one by one and not as a CUDA graph, and the host
  /// waits after each of them, so an error names the instruction. Slow.
  bool check_kernels = false;
};

class device_replica;
class device_ring;

/// The GPUs of this machine, by number from 0. Any thread may call it. Its executors have their own
/// streams, so any number of them can share a GPU.
class gpu_set {
public:
  gpu_set() = default;
  gpu_set(const gpu_set&) = delete;
  gpu_set& operator=(const gpu_set&) = delete;
  virtual ~gpu_set() = default;

  /// For example "NVIDIA H200". Opens the GPU for a moment. Throws device_error if it cannot be
  /// used.
  virtual std::string name(std::size_t index) const = 0;

  /// For plan_options::fusion of plans for a GPU.
  virtual const fusion_table& fusion() const = 0;

  /// Throws input_error, with the name of the layer, if a GPU cannot compute the plan.
  virtual void check(const plan& what) const = 0;

  /// The same for this GPU, which it opens for a moment. Also throws device_error if this GPU lacks
  /// products in the precision of the plan, or if the plan has products and their library is
  /// missing.
  virtual void check(std::size_t index, const plan& what) const = 0;

  /// Memory that an executor of this plan allocates.
  virtual gpu_memory memory_of(const plan& what) const = 0;

  /// Allocates all memory of the GPU that runs need. Throws device_error if the GPU cannot be used
  /// or has too little memory, and input_error like `check`.
  /// @param on_cpu the same computation as a plan for the CPU, to find numbers that are not finite
  virtual std::unique_ptr<device_executor> make_executor(std::size_t index,
                                                         std::shared_ptr<const plan> what,
                                                         std::shared_ptr<const plan> on_cpu,
                                                         const gpu_options& how = {}) const = 0;

  /// Memory that an updater allocates.
  /// @param staged with device_updater::reserve_stage()
  virtual gpu_memory memory_of(const updater_sizes& sizes, bool staged) const = 0;

  /// Opens the GPU. The updaters of a maker share a stream: one thread at a time may use them.
  /// Throws device_error if the GPU cannot be used.
  virtual updater_maker open_updaters(std::size_t index) const = 0;

  /// Opens the GPU for a replica, and again when the replica makes its executor. Throws
  /// device_error if the GPU cannot be used.
  virtual std::unique_ptr<device_replica> open_replica(std::size_t index) const = 0;

  /// Prepares a ring with one replica on each of these GPUs, in the order of ranks. A GPU may have
  /// several. Throws device_error if a GPU cannot be used, or cannot access the memory of another
  /// one, or if there are too many ranks.
  virtual std::shared_ptr<device_ring> open_ring(std::span<const std::size_t> gpus) const = 0;
};

/// These GPUs. Throws device_error if `gpus` is null: the program has no code for GPUs.
const gpu_set& require_gpus(const gpu_set* gpus);

} // namespace troupe
