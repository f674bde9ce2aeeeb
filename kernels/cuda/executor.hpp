#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace troupe::cuda {

struct executor_state;

/// The operations that a GPU can combine into one step of a plan, for plan_options::fusion.
const fusion_table& fusion();

/// Options of a plan for a GPU.
inline plan_options gpu_plan_options() {
  plan_options result;
  result.fusion = &fusion();
  return result;
}

/// Throws input_error, with the name of the layer, if a GPU cannot compute the plan.
void check_supported(const plan& what);

/// Throws device_error if the GPU cannot multiply matrices in the plan's precision.
void check_types(const device& where, const plan& what);

/// Calls device::prepare_products for the matrix products of the plan. Does nothing if the plan has
/// no products.
void prepare_products(device& where, const plan& what);

/// Bytes of device memory that prepare_products() allocates.
std::size_t product_bytes(const plan& what);

/// Runs a plan on a GPU, as troupe::executor does on the CPU.
///
/// The constructor allocates all device memory and pinned memory, with two exceptions: the memory
/// for entries of sparse feeds and the memory for rows of tables (table_rows) grow to the size of
/// the largest batch. The device must outlive the executor. Only one run at a time is possible. On
/// one kind of device, the same input gives the same bits, because kernels add up in a fixed order
/// and without atomics.
///
/// A run is divided into segments. A segment ends before an instruction that needs sums over all
/// workers, and, if the gradient is copied to the host, where a bucket (a range of the gradient) is
/// final. The host submits all segments, and then waits. Each bucket is copied to the host on a
/// second stream while the next segments run. The host waits once for each bucket, in order. With
/// the last bucket, it also receives the loss. If the gradient stays on the device and no layer
/// needs sums over all workers, a run has only one segment.
///
/// For each size of a batch, the first run loads the kernels, and the second run records each
/// segment (a CUDA graph). Later runs with this size submit the recordings. If a recording fails,
/// for example because the GPU has too little memory, the segment runs without it. Later runs
/// record again, but after three failures, this segment is no longer recorded for this size. All
/// recordings, and numbers of failures, are dropped if there are too many sizes, or if the memory
/// for a sparse feed grows. Runs that copy only rows of tables (run_arguments::table_rows), and
/// runs that accumulate gradients, have recordings of their own. The copies of rows are not
/// recorded, because each batch selects other rows.
///
/// A plan with gradients has two sets of device memory for feeds. While a run computes with one
/// set, the dense feeds of an announced batch (run_arguments::next) are copied to the other set on
/// a third stream. Each set has its own recordings.
class executor {
public:
  /// Throws input_error if a GPU cannot compute an operation of the plan. Throws device_error if
  /// there is too little device memory.
  executor(device& where, std::shared_ptr<const plan> what, const gpu_options& how = {});
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Like troupe::executor::run, with arguments in host memory. Weights, feeds and the gradient are
  /// copied through pinned memory, so all copies run while the host continues.
  ///
  /// There are two differences. If the arguments have no weights, the run uses the current contents
  /// of weights(): the weights of the last run, or values that were written there since. (If the
  /// last weights had only some rows of tables, run_arguments::table_rows, the run must use no
  /// other rows.) If the arguments have no gradient, the gradient stays in gradient(),
  /// without the loss scale, run_result::squared_norm is set, on_bucket is not called, and the host
  /// waits only once. The run may add this gradient to that of the run before
  /// (run_arguments::accumulates).
  ///
  /// The first run with each number of rows is not recorded. No run is recorded if on_instruction
  /// or gpu_options::check_kernels is set.
  ///
  /// Throws std::invalid_argument if the arguments do not fit the plan, and device_error if the
  /// device fails, or if a layer is too large for it. A device_error names the instruction whose
  /// submission failed. If the host notices a failure only when it waits, the error names the
  /// instructions of the segment for which it waited. The failure may then also be in earlier
  /// segments for which the host did not wait. With check_kernels, the error always names the
  /// instruction that failed.
  run_result run(const run_arguments<float>& arguments);

  /// Like advance, give_sums and restart of troupe::executor. All weights must be available when a
  /// run begins. advance() returns without a result only if it needs sums over all workers.
  std::optional<run_result> advance(const run_arguments<float>& arguments);
  void give_sums(std::span<const double> totals, std::size_t rows);
  void restart() noexcept;

  /// The values of fetch `index` in the last run, copied to the host. Valid until the next call.
  std::span<const float> fetched(std::size_t index);

  /// The weights and the gradient in device memory, as flat vectors in the order of the layout.
  /// Updaters on the device use them. The gradient is empty for a plan without gradients.
  std::span<float> weights() const noexcept;
  std::span<float> gradient() const noexcept;
  stream where() const noexcept;

  const plan& what() const noexcept;
  /// If a segment is no longer recorded, because recording has failed too often: why. It is
  /// returned once.
  std::string take_notice();
  /// Bytes of device memory that an executor of this plan allocates, including product_bytes(), but
  /// without table_rows::memory_bytes().
  /// @param sparse_entries the number of entries of a batch in each sparse feed; 0 to leave out the
  /// memory of entries
  static std::size_t memory_bytes(const plan& what, std::size_t sparse_entries = 0,
                                  const gpu_options& how = {});
  /// Bytes of pinned memory that an executor of this plan allocates, without rows of tables.
  static std::size_t pinned_bytes(const plan& what, std::size_t sparse_entries = 0);

private:
  std::unique_ptr<executor_state> state_;
};

} // namespace troupe::cuda
