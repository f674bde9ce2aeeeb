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

/// A sparse matrix as compressed rows: the entries of row r are those from starts[r] up to, not
/// including, starts[r + 1]. Borrowed.
template <class T>
struct sparse_rows {
  const std::int32_t* starts = nullptr; ///< (rows + 1)
  const std::int32_t* columns = nullptr;
  const T* values = nullptr; ///< as columns
};

/// What a placeholder is fed with: row-major, `rows` samples. Borrowed for the run.
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

/// Arguments of a run. All memory is the caller's, and borrowed for the run.
template <class T>
struct run_arguments {
  /// Samples, 0 .. plan.max_rows().
  std::size_t rows = 0;
  /// One pointer per layout entry, to its first element: tensors may come from several shards. No
  /// alignment needed. Null: not there yet (`advance` alone).
  std::span<const T* const> weights;
  /// One per placeholder, in the order of graph::placeholders(). Feeds that the plan does not read
  /// may be empty.
  std::span<const feed<T>> feeds;
  /// Seed of the dropout masks: the same seed gives the same masks.
  std::uint64_t seed = 0;
  /// The flat gradient, layout.size() elements, overwritten: d (loss summed over the rows) / d
  /// parameter, and for state the sums of graph::update_state. All zero where rows == 0. Empty for
  /// a plan without gradients.
  std::span<T> gradient;
  /// Called on the running thread during backward, once per bucket in the order of plan.buckets(),
  /// as soon as that part of `gradient` is final and its weights are not read again. It may
  /// overwrite those weights.
  function_ref<void(std::size_t)> on_bucket;
  /// If several workers run the plan together, each over its own samples: called on the running
  /// thread by `advance` with this worker's part of sums over all workers, for which it then stops
  /// (executor::give_sums). All workers get to the same sums in the same order, workers without
  /// samples too. Empty: this worker's samples are all.
  function_ref<void(std::span<const double>)> on_sums;
  /// Called on the running thread after each instruction of the plan, with its number, for
  /// profiling.
  function_ref<void(std::size_t)> on_instruction;
};

/// What a run returns.
struct run_result {
  /// Sum over the samples, added up in double; 0 for a plan without a loss.
  double loss = 0;
  /// Number of samples classified correctly; 0 for a plan that does not count them.
  std::size_t correct = 0;
  /// Number of labels that are not ignored.
  std::size_t counted = 0;
};

template <class T>
struct executor_state;

/// What the CPU computes in one step.
const fusion_table& cpu_fusion();

/// Options of a plan for the CPU.
inline plan_options cpu_plan_options() {
  plan_options result;
  result.fusion = &cpu_fusion();
  return result;
}

/// Runs a plan on the CPU. T: float, or double for reference tests.
///
/// All memory is allocated by the constructor; `run` allocates nothing. One run at a time per
/// executor; different executors, of the same plan too, may run in different threads. Same input,
/// same bits, on any x86-64-v3 machine, for any number of threads.
///
/// With several threads, the result of each large enough instruction is divided into parts, one for
/// each thread: the calling one, and others that live as long as the executor.
template <class T>
class executor {
public:
  explicit executor(std::shared_ptr<const plan> what, std::size_t threads = 1);
  ~executor();
  executor(executor&&) noexcept;
  executor& operator=(executor&&) noexcept;

  /// Throws std::invalid_argument if the arguments do not fit the plan (a mistake in the program,
  /// not in its input), and nothing else.
  run_result run(const run_arguments<T>& arguments);

  /// Begins a run, or goes on with the one under way, as far as the weights allow that are there:
  /// up to the first instruction that reads one that is null; the last instruction waits for all of
  /// them. Stops for sums over workers, too (run_arguments::on_sums). Nothing is returned until the
  /// run is at its end. Between the calls of a run only weights that were null may change in the
  /// arguments. Throws as `run`.
  std::optional<run_result> advance(const run_arguments<T>& arguments);

  /// The sums over all workers that `advance` has stopped for, and the number of samples that all
  /// workers have in this run. The next `advance` goes on with them. Throws std::invalid_argument
  /// if it has not stopped for so many sums.
  void give_sums(std::span<const double> totals, std::size_t rows);

  /// Gives up the run under way, if there is one: `advance` begins another.
  void restart() noexcept;

  /// Finds the origin of a number that is not finite: among weights, feeds and results, in this
  /// order, the first tensor with such an element, such as "weights dense_1.weight", "features" or
  /// "result matmul_7"; empty if there is none. Runs the plan once more and checks after each
  /// instruction. Allocates; does not call on_bucket or on_sums, but uses the sums of the last run.
  std::string find_not_finite(const run_arguments<T>& arguments);

  /// Values of fetch `index` of the last run, row-major, `rows` samples if it is per sample.
  /// Valid until the next run; fetched weights and feeds must still exist.
  std::span<const T> fetched(std::size_t index) const;

  const plan& what() const noexcept;
  /// Bytes allocated for activations, constants and scratch space.
  std::size_t memory_bytes() const noexcept;
  /// The bytes that an executor of this plan would allocate.
  static std::size_t memory_bytes(const plan& what, std::size_t threads = 1) noexcept;

private:
  std::unique_ptr<executor_state<T>> state_;
};

/// The number of sums of each call of run_arguments::on_sums, in order; empty if the plan needs no
/// other workers.
std::vector<std::size_t> sums_over_workers(const plan& what);

extern template class executor<float>;
extern template class executor<double>;

} // namespace troupe
