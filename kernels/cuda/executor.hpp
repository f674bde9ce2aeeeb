#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace troupe::cuda {

struct executor_state;

/// The work of the GPU in one step.
const fusion_table& fusion();

/// Options of a plan for a GPU.
inline plan_options gpu_plan_options() {
  plan_options result;
  result.fusion = &fusion();
  return result;
}

/// Throws input_error, with the name of the layer, if a GPU cannot compute the plan.
void check_supported(const plan& what);

/// Throws device_error if the GPU cannot compute in the plan's precision.
void check_types(const device& where, const plan& what);

/// Prepares what the products of the plan need (device::prepare_products). Nothing if it has none.
void prepare_products(device& where, const plan& what);

/// Runs a plan on a GPU, as troupe::executor does on the CPU.
///
/// The constructor allocates all device memory and pinned memory, except for the entries of sparse
/// feeds, whose memory grows with the largest batch. Only one run at a time. The device must
/// outlive the executor. On one kind of device, the same input gives the same bits, because kernels
/// add up in a fixed order and without atomics.
///
/// A run is divided into segments, which end where a bucket of the gradient is final. The first run
/// with a number of rows records each segment (a CUDA graph); later runs submit the recordings. All
/// segments of a run are submitted first. Each bucket is copied to the host on a second stream
/// while the next segments run, and the host waits once for each bucket, in order. The last bucket
/// also brings the loss.
///
/// A plan with gradients has two sets of feeds. The dense feeds of an announced batch
/// (run_arguments::next) are copied to the second set on a third stream, while the run computes
/// with the first one. Each set has its own recordings.
class executor {
public:
  /// Throws input_error if a GPU cannot compute an operation of the plan. Throws device_error if
  /// there is too little device memory.
  executor(device& where, std::shared_ptr<const plan> what, const gpu_options& how = {});
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Like troupe::executor::run, with arguments in host memory. Weights, feeds and the gradient
  /// travel through pinned memory, so that all copies run beside the host's work. There are two
  /// differences. If the arguments have no weights, weights() keeps its contents from the last run,
  /// or what was written to it since. If the arguments have no gradient, the gradient stays in
  /// gradient(), the result has its norm, and on_bucket is not called: the host waits once. With
  /// on_instruction, nothing is recorded, nor in the first run of so many rows. Throws device_error
  /// if the device fails, std::invalid_argument if the arguments do not fit the plan. An error
  /// names the instruction that failed, or, if the host notices a failure only later, the
  /// instructions that may have (gpu_options::check_kernels).
  run_result run(const run_arguments<float>& arguments);

  /// As troupe::executor::advance, give_sums and restart. It needs all weights when a run begins,
  /// and stops only for sums over all workers.
  std::optional<run_result> advance(const run_arguments<float>& arguments);
  void give_sums(std::span<const double> totals, std::size_t rows);
  void restart() noexcept;

  /// The values of fetch `index` in the last run, copied to the host. Valid until the next call.
  std::span<const float> fetched(std::size_t index);

  /// The flat vectors of the layout in device memory, for updates there. The gradient is empty for
  /// a plan without gradients.
  std::span<float> weights() const noexcept;
  std::span<float> gradient() const noexcept;
  stream where() const noexcept;

  const plan& what() const noexcept;
  /// Bytes of device memory that an executor of this plan allocates, without the entries of sparse
  /// feeds.
  static std::size_t memory_bytes(const plan& what);
  /// The same for pinned memory.
  static std::size_t pinned_bytes(const plan& what);

private:
  std::unique_ptr<executor_state> state_;
};

} // namespace troupe::cuda
