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

/// A sparse matrix as compressed rows: row r has the entries from starts[r] up to, but not
/// including, starts[r + 1]. Borrowed.
template <class T>
struct sparse_rows {
  const std::int32_t* starts = nullptr; ///< (rows + 1)
  const std::int32_t* columns = nullptr;
  const T* values = nullptr; ///< the same size as columns
};

/// The value of a placeholder: row-major, `rows` samples. Borrowed for the run.
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

/// Some rows of a weight. Rows are slices of its first dimension.
template <class T>
struct weight_rows {
  std::size_t weight = 0; ///< position in the layout
  range rows;
  const T* values = nullptr; ///< the first of these rows; the others follow without gaps
};

/// The feeds of a later run. Borrowed for a call.
template <class T>
struct announced_feeds {
  /// The number of its batch; 0 if no batch is announced.
  std::uint64_t batch = 0;
  std::size_t rows = 0;
  /// Those of the first placeholders. The others are not known yet.
  std::span<const feed<T>> feeds;
};

/// Arguments of a run. All memory belongs to the caller and is borrowed for the run.
template <class T>
struct run_arguments {
  /// Number of samples, 0 .. plan.max_rows().
  std::size_t rows = 0;
  /// One pointer per layout entry, to its first element: tensors may come from several shards. No
  /// alignment is needed. A null pointer means that the tensor is not available yet (only for
  /// `advance`).
  std::span<const T* const> weights;
  /// Weights whose rows are in several places: all of their rows, each once, in ascending order. A
  /// place has at least two rows. Their pointer in `weights` only shows whether they are available.
  /// Only for weights that may be cut (may_be_cut()).
  std::span<const weight_rows<T>> parts;
  /// One per placeholder, in the order of graph::placeholders(). Feeds that the plan does not read
  /// may be empty.
  std::span<const feed<T>> feeds;
  /// The number of the batch: runs with the same number have the same rows and feeds, except for
  /// feeds that announced_feeds left out. 0 if it has none.
  std::uint64_t batch = 0;
  /// The batch of the next run, if it is known. A GPU copies its feeds during this run. Another
  /// batch may come instead.
  announced_feeds<T> next;
  /// Seed of the dropout masks: the same seed gives the same masks.
  std::uint64_t seed = 0;
  /// The flat gradient, layout.size() elements, overwritten: d (loss summed over the rows) / d
  /// parameter; for state, the sums of graph::update_state. All zero if rows == 0. Empty for a plan
  /// without gradients.
  std::span<T> gradient;
  /// Called on the running thread during backward, once per bucket in the order of plan.buckets(),
  /// as soon as that part of `gradient` is final and the bucket's weights are not read again. It
  /// may overwrite these weights.
  function_ref<void(std::size_t)> on_bucket;
  /// For several workers that run the plan together, each over its own samples. `advance` calls
  /// this on the running thread with this worker's part of sums over all workers, and then stops
  /// until the caller supplies the sums (executor::give_sums). All workers, even those without
  /// samples, reach the same sums in the same order. Empty if there are no other workers.
  function_ref<void(std::span<const double>)> on_sums;
  /// Called on the running thread after each instruction of the plan, with its number, for
  /// profiling.
  function_ref<void(std::size_t)> on_instruction;
};

/// The results of a run.
struct run_result {
  /// Sum over the samples, added up in double; 0 for a plan without a loss.
  double loss = 0;
  /// Number of samples classified correctly; 0 for a plan that does not count them.
  std::size_t correct = 0;
  /// Number of labels that are not ignored.
  std::size_t counted = 0;
  /// Only if the gradient stays on a GPU: its sum of squares over trainable parameters. NaN if an
  /// element of it is not finite, also in the part of statistics.
  double squared_norm = 0;
};

template <class T>
struct executor_state;

/// The computations that the CPU combines into one step.
const fusion_table& cpu_fusion();

/// Options of a plan for the CPU.
inline plan_options cpu_plan_options() {
  plan_options result;
  result.fusion = &cpu_fusion();
  return result;
}

/// Runs a plan on the CPU. T: float, or double for reference tests.
///
/// The constructor allocates all memory; `run` allocates nothing. One run at a time per executor.
/// Different executors, even of the same plan, may run in different threads. The same input gives
/// the same bits, on any x86-64-v3 machine and with any number of threads.
///
/// With several threads, the result of each large enough instruction is divided into parts, one per
/// thread. The threads are the calling one and others that live as long as the executor.
template <class T>
class executor {
public:
  explicit executor(std::shared_ptr<const plan> what, std::size_t threads = 1);
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Throws std::invalid_argument if the arguments do not fit the plan (a mistake in the program,
  /// not in its input). Throws nothing else.
  run_result run(const run_arguments<T>& arguments);

  /// Begins a run, or continues the current one, as far as the available weights allow: up to the
  /// first instruction that reads a weight whose pointer is null. The last instruction waits for
  /// all weights. It also stops for sums over workers (run_arguments::on_sums). Returns nothing
  /// until the run has ended. Between the calls of a run, only null weights of the arguments may
  /// change. Throws like `run`.
  std::optional<run_result> advance(const run_arguments<T>& arguments);

  /// Supplies the sums over all workers for which `advance` has stopped, and the number of samples
  /// of all workers in this run. The next `advance` continues with them. Throws
  /// std::invalid_argument if it has not stopped for this number of sums.
  void give_sums(std::span<const double> totals, std::size_t rows);

  /// Abandons the current run, if any. The next `advance` begins a new one.
  void restart() noexcept;

  /// Finds the origin of a number that is not finite: the first tensor among weights, feeds and
  /// results, in this order, that has such an element. For example "weights dense_1.weight",
  /// "features" or "result matmul_7"; empty if there is none. It runs the plan once more and checks
  /// after each instruction. Allocates; does not call on_bucket or on_sums, but uses the sums of
  /// the last run. All weights must be in one piece.
  std::string find_not_finite(const run_arguments<T>& arguments);

  /// Values of fetch `index` in the last run, row-major, `rows` samples if the value is per sample.
  /// Valid until the next run. Fetched weights and feeds must still exist.
  std::span<const T> fetched(std::size_t index) const;

  const plan& what() const noexcept;
  /// Bytes allocated for activations, constants and scratch space.
  std::size_t memory_bytes() const noexcept;
  /// The bytes that an executor of this plan would allocate.
  static std::size_t memory_bytes(const plan& what, std::size_t threads = 1) noexcept;

private:
  std::unique_ptr<executor_state<T>> state_;
};

/// True if runs accept the rows of this weight in several places, with the same bits in the result:
/// the plan uses the weight only as the right operand of matrix products with more than one column,
/// or looks up its rows.
bool may_be_cut(const plan& what, std::size_t weight);

/// The number of sums of each call of run_arguments::on_sums, in order; empty if the plan needs no
/// other workers.
std::vector<std::size_t> sums_over_workers(const plan& what);

extern template class executor<float>;
extern template class executor<double>;

} // namespace troupe
