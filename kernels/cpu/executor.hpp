#pragma once

#include "kernels/function_ref.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A sparse matrix as compressed rows: the entries of row r have the positions from starts[r] up
/// to, but not including, starts[r + 1] in `columns` and `values`. The memory belongs to the
/// caller.
template <class T>
struct sparse_rows {
  const std::int32_t* starts = nullptr; ///< (rows + 1)
  const std::int32_t* columns = nullptr;
  const T* values = nullptr; ///< one per entry, like columns
};

/// The value of a placeholder for `rows` samples, row-major. Only the member for the type of the
/// placeholder is set. The memory belongs to the caller, who keeps it during the run.
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

/// A part of a weight whose rows are in several places (run_arguments::parts). Rows are slices of
/// the weight's first dimension.
template <class T>
struct weight_rows {
  std::size_t weight = 0; ///< position in the layout
  range rows;
  const T* values = nullptr; ///< the first of these rows; the other rows follow without gaps
};

/// The feeds of a later run. The caller keeps their memory during the call. Feeds in pinned
/// (page-locked) memory must stay and not change until the next run has ended, or the executor is
/// destroyed, because a GPU copies them while the caller continues.
template <class T>
struct announced_feeds {
  /// The number of the batch of that run; 0 if no batch is announced.
  std::uint64_t batch = 0;
  std::size_t rows = 0;
  /// The feeds of the first placeholders. The feeds of further placeholders are not known yet.
  std::span<const feed<T>> feeds;
};

/// Arguments of a run. All memory belongs to the caller, who keeps it during the run.
template <class T>
struct run_arguments {
  /// Number of samples, 0 .. plan.max_rows().
  std::size_t rows = 0;
  /// One pointer per layout entry, to its first element. The tensors may be in different places,
  /// because they may come from several shards. No alignment is needed. A null pointer means that
  /// the tensor is not available yet. Only `advance` accepts it.
  std::span<const T* const> weights;
  /// The parts of weights whose rows are in several places. The parts of such a weight contain all
  /// of its rows, each once, in ascending order. Each part has at least two rows. The pointer in
  /// `weights` then only shows whether the weight is available. Only for weights for which
  /// may_be_cut() is true.
  std::span<const weight_rows<T>> parts;
  /// One feed per placeholder, in the order of graph::placeholders(). A feed that the plan does not
  /// read may be empty.
  std::span<const feed<T>> feeds;
  /// The number of the batch; 0 if it has none. Runs with the same number have the same rows and
  /// feeds, except for feeds that announced_feeds did not contain.
  std::uint64_t batch = 0;
  /// The batch of the next run, if it is known. A GPU copies the announced feeds during this run.
  /// The next run may also have another batch.
  announced_feeds<T> next;
  /// Seed of the dropout masks: the same seed gives the same masks.
  std::uint64_t seed = 0;
  /// The flat gradient, layout.size() elements. The run overwrites it with d (loss summed over the
  /// rows) / d parameter; for state, with the sums of graph::update_state. It is 0 everywhere if
  /// rows == 0. Empty for a plan without gradients.
  std::span<T> gradient;
  /// Called with the number of a bucket as soon as this part of `gradient` is final and the run no
  /// longer reads the weights of the bucket. The function may overwrite these weights. It is called
  /// on the thread of the run, during the backward pass, once per bucket, in the order of
  /// plan.buckets().
  function_ref<void(std::size_t)> on_bucket;
  /// For several workers that run the plan together, each with its own samples, and need sums over
  /// the samples of all workers. `advance` calls this function with this worker's part of the sums,
  /// on the thread of the run. Then it stops until the caller supplies the sums
  /// (executor::give_sums). All workers, even workers without samples, reach the same sums in the
  /// same order. Empty if there are no other workers.
  function_ref<void(std::span<const double>)> on_sums;
  /// Called with the number of an instruction after the instruction has run, on the thread of the
  /// run. For profiling.
  function_ref<void(std::size_t)> on_instruction;
};

/// The results of a run.
struct run_result {
  /// The loss, summed over the samples in double; 0 for a plan without a loss.
  double loss = 0;
  /// Number of samples that are classified correctly; 0 for a plan that does not count them.
  std::size_t correct = 0;
  /// Number of labels that are not ignored.
  std::size_t counted = 0;
  /// Only if the gradient stays on a GPU: the sum of squares of the gradient of all trainable
  /// parameters. NaN if an element of the flat gradient is not finite, even in the statistics of
  /// state.
  double squared_norm = 0;
};

template <class T>
struct executor_state;

/// Describes which operations the CPU can combine into one step.
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
/// each thread computes one part. The threads are the calling thread and others that exist as long
/// as the executor.
template <class T>
class executor {
public:
  /// Throws input_error if the arena of the plan needs more memory than the machine has, and
  /// std::system_error if the threads cannot be started.
  explicit executor(std::shared_ptr<const plan> what, std::size_t threads = 1);
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Runs the plan. Throws std::invalid_argument if the arguments do not fit the plan, which is a
  /// mistake in the program, not in its input. Throws nothing else.
  run_result run(const run_arguments<T>& arguments);

  /// Begins a run, or continues the current run, as far as the available weights allow. It stops
  /// before the first instruction that reads a weight whose pointer is null. It does not run the
  /// last instruction until all weights are available. It also stops for sums over workers
  /// (run_arguments::on_sums). Returns nothing until the run has ended. Between the calls of a run,
  /// the caller may only replace null pointers to weights; the other arguments must stay the same.
  /// Throws like `run`.
  std::optional<run_result> advance(const run_arguments<T>& arguments);

  /// Supplies the sums over all workers for which `advance` has stopped, and the number of samples
  /// of all workers in this run. The next `advance` continues with these sums. Throws
  /// std::invalid_argument if `advance` has not stopped for this number of sums.
  void give_sums(std::span<const double> totals, std::size_t rows);

  /// Ends the current run without a result, if there is one. The next `advance` begins a new run.
  void restart() noexcept;

  /// Finds the origin of a number that is not finite. Returns the first tensor with such an
  /// element, for example "weights dense_1.weight", "features" or "result matmul_7"; empty if there
  /// is none. It checks the weights, then the feeds, then the results of instructions. For this
  /// purpose, it runs the plan once more and checks after each instruction. It allocates memory. It
  /// does not call on_bucket or on_sums, but uses the sums of the last run. All weights must be in
  /// one piece.
  std::string find_not_finite(const run_arguments<T>& arguments);

  /// The values of fetch `index` in the last run, row-major, with `rows` samples if there is a
  /// value per sample. Valid until the next run. If the fetch is a weight or a feed, the result
  /// points to the memory that the caller passed to the run.
  std::span<const T> fetched(std::size_t index) const;

  const plan& what() const noexcept;
  /// Bytes that this executor has allocated for activations, constants and scratch space.
  std::size_t memory_bytes() const noexcept;
  /// The bytes that an executor of this plan would allocate.
  static std::size_t memory_bytes(const plan& what, std::size_t threads = 1) noexcept;

private:
  std::unique_ptr<executor_state<T>> state_;
};

/// True if runs accept the rows of this weight in several places (run_arguments::parts), and give
/// the same bits as with the weight in one piece. This is the case if the weight is a matrix with
/// at least two columns, and the plan only looks up its rows or uses it as the right operand of
/// matmul.
bool may_be_cut(const plan& what, std::size_t weight);

/// The number of sums in each call of run_arguments::on_sums, in the order of the calls. Empty if
/// the plan needs no sums over workers.
std::vector<std::size_t> sums_over_workers(const plan& what);

extern template class executor<float>;
extern template class executor<double>;

} // namespace troupe
