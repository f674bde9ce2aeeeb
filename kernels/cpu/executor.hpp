#pragma once

#include "kernels/function_ref.hpp"
#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A sparse matrix as compressed rows. The entries of row r are at the positions from starts[r] up
/// to, but not including, starts[r + 1] in `columns` and `values`. The memory belongs to the
/// caller.
template <class T>
struct sparse_rows {
  const std::int32_t* starts = nullptr; ///< (rows + 1)
  const std::int32_t* columns = nullptr;
  const T* values = nullptr; ///< one per entry
};

/// The value of a placeholder for `rows` samples, row-major. Only the member that matches the type
/// of the placeholder is set. The memory belongs to the caller, who keeps it during the run.
template <class T>
struct feed {
  const T* values = nullptr;
  const std::int32_t* labels = nullptr;
  sparse_rows<T> sparse;

  feed() = default;
  feed(const T* x) : values(x) {}            // NOLINT: implicit
  feed(const std::int32_t* x) : labels(x) {} // NOLINT: implicit
  feed(sparse_rows<T> x) : sparse(x) {}      // NOLINT: implicit
};

/// One piece of a weight that is in several pieces of memory (run_arguments::parts). The piece has
/// the rows `rows` of the weight. Rows are slices of the weight's first dimension.
template <class T>
struct weight_rows {
  std::size_t weight = 0; ///< position in the layout
  range rows;
  const T* values = nullptr; ///< the first of these rows; the other rows follow it without gaps
};

/// The feeds (values of placeholders) of a later run, which the caller passes in advance. A GPU
/// copies them while the caller continues. Feeds in ordinary memory must exist during the call.
/// Feeds in pinned (page-locked) memory must exist and not change until the next run has ended, or
/// the executor is destroyed.
template <class T>
struct announced_feeds {
  /// The number of the batch of the later run. 0 if no feeds are passed in advance.
  std::uint64_t batch = 0;
  std::size_t rows = 0;
  /// The feeds of the first feeds.size() placeholders. The feeds of the remaining placeholders are
  /// not known yet.
  std::span<const feed<T>> feeds;
};

/// Arguments of a run. All memory belongs to the caller, who keeps it during the run.
template <class T>
struct run_arguments {
  /// Number of samples, 0 .. plan.max_rows().
  std::size_t rows = 0;
  /// One pointer per layout entry, to the first element of the tensor. The tensors may be in
  /// different places, because they may come from several shards. No alignment is needed. For
  /// `advance`, a null pointer means that the tensor is not available yet. `run` does not accept
  /// null pointers.
  std::span<const T* const> weights;
  /// The pieces of the weights that are in several pieces of memory. The pieces of a weight follow
  /// each other. They contain all of its rows, each row once, in ascending order. Each piece has at
  /// least two rows. For such a weight, the pointer in `weights` only shows whether the weight is
  /// available, and may_be_cut() must be true.
  std::span<const weight_rows<T>> parts;
  /// One feed per placeholder, in the order of graph::placeholders(). A feed that the plan does not
  /// read may be empty.
  std::span<const feed<T>> feeds;
  /// The number of the batch. 0 if it has no number. Two runs with the same number must have the
  /// same `rows`, and the same feeds as in announced_feeds. The feeds that announced_feeds does not
  /// contain may differ.
  std::uint64_t batch = 0;
  /// The feeds of the next run, if they are known. A GPU copies them during this run. The next run
  /// may nevertheless use another batch.
  announced_feeds<T> next;
  /// Seed of the dropout masks: the same seed gives the same masks.
  std::uint64_t seed = 0;
  /// The flat gradient, layout.size() elements. The run overwrites it with d (loss summed over the
  /// rows) / d parameter. For a parameter of kind state, such as a running mean, it writes the sum
  /// from graph::update_state instead. If rows == 0, the gradient is 0 everywhere. Empty for a plan
  /// without gradients.
  std::span<T> gradient;
  /// Only for a gradient that stays on a GPU (device_executor::take_weights): true to add the
  /// gradient of this run to that of the previous run, which must have stayed there, too. All
  /// elements are added, also those of kind state. The results, such as the loss, are those of this
  /// run, but run_result::squared_norm is that of the sum.
  bool accumulates = false;
  /// Used only if accumulates is true: true if this run repeats the previous run, whose gradient
  /// was not finite. The gradient of this run is then added to the sum before the previous run.
  bool replaces = false;
  /// True if the gradients of all parameters in plan::row_sparse_gradients() are 0 before the run.
  /// The CPU then writes only the rows of the batch, so that the run takes no time for the others.
  bool tables_cleared = false;
  /// Used only if tables_cleared is true. These ranges of the flat parameter vector contain all
  /// rows of these parameters that the batch selects. They may contain other elements, too. A GPU
  /// then copies only these rows of the weights and of the gradient. Later runs without weights
  /// may use no other rows. Null if the rows are not known.
  const range_list* table_rows = nullptr;
  /// Called with the number of a bucket as soon as the bucket is ready: its part of `gradient` is
  /// final, and the run no longer reads its weights. The function may overwrite these weights. It
  /// is called on the thread of the run, during the backward pass, once per bucket, in the order of
  /// plan.buckets().
  function_ref<void(std::size_t)> on_bucket;
  /// Called when an instruction needs sums over the samples of all workers. The argument contains
  /// the sums over this worker's samples. `advance` calls the function on the thread of the run,
  /// and then stops until the caller supplies the sums over all workers (executor::give_sums). All
  /// workers, even workers without samples, need the same sums in the same order.
  ///
  /// Empty if there is only one worker.
  function_ref<void(std::span<const double>)> on_sums;
  /// For profiling: called with the number of an instruction after the instruction has run, on the
  /// thread of the run.
  function_ref<void(std::size_t)> on_instruction;
};

/// The results of a run.
struct run_result {
  /// The loss, summed over the samples in double. 0 for a plan without a loss.
  double loss = 0;
  /// Number of samples that are classified correctly. 0 for a plan that does not count them.
  std::size_t correct = 0;
  /// Number of labels that are not ignored.
  std::size_t counted = 0;
  /// The sum of squares of the gradient of all trainable parameters, without the loss scale
  /// (plan::loss_scale_feed). It is set only if the gradient stays on a GPU. NaN if an element of
  /// the flat gradient is not finite, even if this element belongs to a parameter of kind state.
  double squared_norm = 0;
};

template <class T>
struct executor_state;

/// The operations that the CPU can combine into one step.
const fusion_table& cpu_fusion();

/// Options of a plan for the CPU.
inline plan_options cpu_plan_options() {
  plan_options result;
  result.fusion = &cpu_fusion();
  return result;
}

/// Runs a plan on the CPU. T: float, or double for reference tests.
///
/// The constructor allocates all memory; `run` allocates nothing. An executor can do only one run
/// at a time. Different executors, even of the same plan, may run in different threads. The same
/// input gives the same bits, on every x86-64-v3 machine and with any number of threads.
///
/// With several threads, the executor divides the result of each large instruction into parts, and
/// each thread computes one part. One of the threads is the calling thread. The other threads exist
/// as long as the executor.
template <class T>
class executor {
public:
  /// Throws input_error if the plan's arena (intermediate values) is larger than the memory, and
  /// std::system_error if the threads cannot be started.
  explicit executor(std::shared_ptr<const plan> what, std::size_t threads = 1);
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Runs the plan. Throws std::invalid_argument if the arguments do not fit the plan. This is a
  /// mistake in the calling program, not in the user's input. Throws nothing else.
  run_result run(const run_arguments<T>& arguments);

  /// Begins a run, or continues the current run, as far as the available weights allow. Returns the
  /// result when the run has ended; before that, it returns nothing. Throws like `run`.
  ///
  /// It stops before the first instruction that reads a weight whose pointer is null. It does not
  /// run the last instruction until all weights are available. It also stops for sums over workers
  /// (run_arguments::on_sums). Between the calls of a run, the caller may replace null pointers to
  /// weights. All other arguments must stay the same.
  std::optional<run_result> advance(const run_arguments<T>& arguments);

  /// Supplies the sums that `advance` is waiting for: `totals` are the sums over all workers, and
  /// `rows` is the number of samples of all workers in this run. The next call of `advance`
  /// continues with these sums. Throws std::invalid_argument if `advance` is not waiting for this
  /// number of sums.
  void give_sums(std::span<const double> totals, std::size_t rows);

  /// Ends the current run, if there is one, without a result. The next call of `advance` begins a
  /// new run.
  void restart() noexcept;

  /// Finds the origin of a number that is not finite. Returns the first tensor that contains such a
  /// number, for example "weights dense_1.weight", "features" or "result matmul_7 (computed with
  /// weights dense_1.weight)". The result is empty if all tensors are finite. It checks the
  /// weights, then the feeds, then the results of instructions.
  ///
  /// It runs the plan once more and checks after each instruction. It allocates memory. It does not
  /// call on_bucket or on_sums, but uses the sums of the last run. `parts` must be empty: all
  /// weights must be in one piece.
  std::string find_not_finite(const run_arguments<T>& arguments);

  /// The values of the node plan_options::fetches[index] in the last run, row-major. A per-sample
  /// value has `rows` samples. The result is valid until the next run. If the node is a weight or a
  /// feed, the result points to the memory that the caller passed to the run.
  std::span<const T> fetched(std::size_t index) const;

  const plan& what() const noexcept;
  /// Bytes that this executor has allocated for activations, constants and scratch space.
  std::size_t memory_bytes() const noexcept;
  /// The bytes that an executor of this plan would allocate.
  static std::size_t memory_bytes(const plan& what, std::size_t threads = 1) noexcept;

private:
  std::unique_ptr<executor_state<T>> state_;
};

/// True if this weight may be in several pieces of memory (run_arguments::parts). Runs then give
/// the same bits as with the weight in one piece. The weight must be a matrix with at least two
/// columns. The plan must use it only as the table of an embedding or as the right operand of
/// matmul.
bool may_be_cut(const plan& what, std::size_t weight);

/// The number of sums in each call of run_arguments::on_sums, in the order of the calls. Empty if
/// the plan needs no sums over workers.
std::vector<std::size_t> sums_over_workers(const plan& what);

extern template class executor<float>;
extern template class executor<double>;

} // namespace troupe
