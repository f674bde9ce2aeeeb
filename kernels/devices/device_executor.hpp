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

/// Runs a plan on a device. The arguments and the results are in the memory of the host. The
/// functions without a comment do the same as the functions of troupe::executor. On a GPU,
/// functions also throw device_error. Only one thread at a time may use an executor.
class device_executor {
public:
  device_executor() = default;
  device_executor(const device_executor&) = delete;
  device_executor& operator=(const device_executor&) = delete;
  virtual ~device_executor() = default;

  /// Like executor::advance. A GPU does not begin before all weights are available.
  virtual std::optional<run_result> advance(const run_arguments<float>& arguments) = 0;
  virtual void give_sums(std::span<const double> totals, std::size_t rows) = 0;
  virtual void restart() noexcept = 0;
  virtual std::string find_not_finite(const run_arguments<float>& arguments) = 0;
  virtual std::span<const float> fetched(std::size_t index) = 0;
  virtual const plan& what() const noexcept = 0;
  /// True if the rows of this weight may be in several pieces of memory (run_arguments::parts).
  virtual bool takes_rows(std::size_t) const { return false; }
  /// True if run_arguments::weights may be empty. The run then uses the weights of the previous
  /// run.
  virtual bool keeps_weights() const { return false; }

  /// A message for users if runs have become slower. Each message is returned once; otherwise the
  /// result is empty.
  virtual std::string take_notice() { return {}; }

  /// Only for the executor of a device_replica. After this call, runs with empty
  /// run_arguments::weights use the newest weights of the replica.
  ///
  /// If run_arguments::gradient is empty, the gradient of the run stays on the device, and is
  /// divided by the loss scale (plan::loss_scale_feed).
  /// run_result::squared_norm is then the sum of its squares over the trainable parameters, or NaN
  /// if an element is not finite.
  virtual void take_weights() {}
  /// Copies all elements of the gradient that stayed on the device to the host's memory, and waits
  /// for the copy.
  virtual void read_gradient(std::span<float>) {}
  /// Sets an element of the gradient that stayed on the device to NaN, and waits. A sum over
  /// replicas is then not finite, so the other replicas notice that the step has failed.
  virtual void spoil_gradient() {}
};

/// Makes an executor that runs a plan on the CPU with this number of threads. Throws input_error
/// like troupe::executor.
std::unique_ptr<device_executor> make_cpu_executor(std::shared_ptr<const plan> what,
                                                   std::size_t threads);

/// The memory that work on a GPU needs, in bytes.
struct gpu_memory {
  /// Memory of the GPU.
  std::size_t device = 0;
  /// Page-locked memory of the host, for copies from and to the GPU.
  std::size_t pinned = 0;
};

/// How a GPU runs plans.
struct gpu_options {
  /// If true, products of float32 may round their operands to TF32.
  bool tf32 = false;
  /// If true, instructions are launched one by one instead of as a CUDA graph, and the host waits
  /// after each of them. If an instruction fails, the error then names this instruction. Use it
  /// only to find faults, because it is slow.
  bool check_kernels = false;
  /// True if runs use run_arguments::accumulates. The executor then has memory for another
  /// gradient.
  bool accumulates = false;
};

class device_replica;
class device_ring;
class pinned_memory;

/// The GPUs of this machine that the process may use. They are numbered from 0. Any thread may call
/// the functions. Each executor has its own streams, so any number of executors can share a GPU.
class gpu_set {
public:
  gpu_set() = default;
  gpu_set(const gpu_set&) = delete;
  gpu_set& operator=(const gpu_set&) = delete;
  virtual ~gpu_set() = default;

  /// The name of a GPU, for example "NVIDIA H200". Opens the GPU and closes it again. Throws
  /// device_error if the GPU cannot be used.
  virtual std::string name(std::size_t index) const = 0;

  /// The operations that a GPU can combine into one step of a plan, for plan_options::fusion.
  virtual const fusion_table& fusion() const = 0;

  /// Throws input_error, with the name of the layer, if GPUs cannot compute the plan. Opens no GPU.
  virtual void check(const plan& what) const = 0;

  /// Like check(what), but it also checks GPU number `index`, which it opens and closes again.
  /// Throws device_error if the GPU cannot be used, if it has no products in the precision of the
  /// plan, or if the plan has products and the library that computes them is missing.
  virtual void check(std::size_t index, const plan& what) const = 0;

  /// The memory that an executor of this plan allocates, including the work space of libraries for
  /// matrix products. The driver needs more memory for each process (its context).
  /// @param sparse_entries the number of entries of a batch in each sparse feed; 0 to leave out the
  /// memory of entries
  virtual gpu_memory memory_of(const plan& what, std::size_t sparse_entries,
                               const gpu_options& how = {}) const = 0;

  /// The memory for runs that copy only rows of tables (run_arguments::table_rows), which an
  /// executor allocates when such a run needs it.
  /// @param batches the number of batches of a step
  virtual gpu_memory memory_of_rows(const plan& what, std::size_t sparse_entries,
                                    std::size_t batches) const = 0;

  /// Makes an executor, and allocates all memory of the GPU that its runs need. Throws device_error
  /// if the GPU cannot be used or has too little memory. Also throws the errors of `check`.
  /// @param on_cpu a plan of the same computation for the CPU, which find_not_finite() runs
  virtual std::unique_ptr<device_executor> make_executor(std::size_t index,
                                                         std::shared_ptr<const plan> what,
                                                         std::shared_ptr<const plan> on_cpu,
                                                         const gpu_options& how = {}) const = 0;

  /// Opens the GPU for allocations of pinned memory. Feeds in this memory are copied to GPUs
  /// directly (direct_feed_bytes). Throws device_error if the GPU cannot be used.
  virtual std::shared_ptr<pinned_memory> open_pinned_memory(std::size_t index) const = 0;

  /// The memory that an updater of these sizes allocates.
  /// @param staged true to include the memory of device_updater::reserve_stage()
  virtual gpu_memory memory_of(const updater_sizes& sizes, bool staged) const = 0;

  /// Opens the GPU, and returns a function that makes updaters on it. These updaters share a
  /// stream, so only one thread at a time may use them. Throws device_error if the GPU cannot be
  /// used.
  virtual updater_maker open_updaters(std::size_t index) const = 0;

  /// Opens the GPU for a replica. The replica opens it once more when it makes its executor. Throws
  /// device_error if the GPU cannot be used.
  virtual std::unique_ptr<device_replica> open_replica(std::size_t index) const = 0;

  /// Prepares a ring. `gpus` has the GPU of each rank, and each rank has a replica. Several ranks
  /// may use the same GPU. Throws device_error if a GPU cannot be used, if a GPU cannot access the
  /// memory of another one, or if the number of ranks is below 2 or too large.
  virtual std::shared_ptr<device_ring> open_ring(std::span<const std::size_t> gpus) const = 0;
};

/// Returns *gpus. Throws device_error if `gpus` is null, which means that the program has no code
/// for GPUs.
const gpu_set& require_gpus(const gpu_set* gpus);

} // namespace troupe
