#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/thread_team.hpp"
#include "kernels/plan/widened.hpp"
#include "kernels/range.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <span>
#include <vector>

// The state of an executor. Internal to the executor. The functions that run instructions are
// declared in kernels/cpu/operation_table.hpp.

namespace troupe {

inline constexpr std::align_val_t alignment{64};

struct aligned_delete {
  void operator()(void* p) const noexcept { ::operator delete(p, alignment); }
};

template <class T>
using aligned_array = std::unique_ptr<T[], aligned_delete>;

template <class T>
aligned_array<T> make_aligned(std::size_t n) {
  auto* p = static_cast<T*>(::operator new(std::max<std::size_t>(n, 1) * sizeof(T), alignment));
  std::fill_n(p, n, T(0)); // so that the system maps the pages now, not during the first run
  return aligned_array<T>(p);
}

/// Throws std::invalid_argument if the rows and feeds of a run do not fit the plan.
template <class T>
void check_feeds(const plan& what, std::size_t rows, std::span<const feed<T>> feeds);

/// The size of a tensor as a matrix. The last dimension gives the columns; all other dimensions
/// together give the rows.
struct extent {
  std::size_t rows;
  std::size_t columns;
};

inline extent matrix_extent(const shape& x, std::size_t rows) {
  const auto columns = static_cast<std::size_t>(x.last());
  if (x.rank() < 1)
    return {1, 1};
  if (x.rank() == 1)
    return x.has_batch() ? extent{1, rows} : extent{1, columns};
  std::size_t leading = 1;
  for (std::size_t i = 0; i + 1 < x.rank(); ++i)
    leading *= x[i] == shape::batch ? rows : static_cast<std::size_t>(x[i]);
  return {leading, columns};
}

/// Smallest number of elements, or of multiply-adds, that a thread gets. To give a thread less work
/// costs more time than it saves: the thread must be notified, and its operands are mostly in the
/// cache of another processor.
inline constexpr std::size_t least_elements = std::size_t{1} << 15;
inline constexpr std::size_t least_products = std::size_t{1} << 20;
/// Number of blocks of rows into which a sum over rows is divided. It does not depend on the number
/// of threads, so the bits of the result do not depend on it either.
inline constexpr std::size_t row_blocks = 16;

template <class T>
struct executor_state {
  explicit executor_state(std::shared_ptr<const plan> instructions);

  std::shared_ptr<const plan> what;
  /// The instructions that the executor runs. Values of 16 bits are replaced by float32, because
  /// most loops have no 16-bit types.
  widened_instructions code;
  aligned_array<T> arena;
  /// Scratch space: scratch_size elements for each thread.
  aligned_array<T> scratch;
  std::size_t scratch_size = 0;
  /// The threads. Null if there is only one thread.
  std::unique_ptr<thread_team> team;
  // Arguments of the last run, copied into vectors of the right size.
  std::size_t rows = 0;
  std::vector<const T*> weights;
  std::vector<feed<T>> feeds;
  /// Parts of weights (run_arguments::parts). The memory belongs to the caller.
  std::span<const weight_rows<T>> parts;
  /// Scratch space that all threads share.
  aligned_array<T> shared;
  /// Pointers to the operands of an `elementwise` instruction: register_count for each thread.
  std::vector<const T*> registers;
  std::size_t register_count = 0;
  T* gradient = nullptr;
  bool tables_cleared = false;
  std::uint64_t seed = 0;

  void bind(const run_arguments<T>& arguments);
  const T* read(const operand& x) const;
  /// Calls f(rows, pointer to the first of these rows) for each piece of memory of the matrix x, in
  /// ascending order of the rows. Only a weight in `parts` has several pieces.
  template <class F>
  void for_rows(const operand& x, F f) const {
    const auto pieces = parts_of(x);
    for (const auto& part : pieces)
      f(part.rows, part.values);
    if (pieces.empty())
      f(range{0, matrix_extent(x.shape, rows).rows}, read(x));
  }
  /// The pieces of memory of a weight that has several. Empty for other operands.
  std::span<const weight_rows<T>> parts_of(const operand& x) const {
    const auto is_part = [&](const weight_rows<T>& part) {
      return x.where == operand::place::weight && part.weight == x.index;
    };
    const auto first = std::ranges::find_if(parts, is_part);
    return {first, std::find_if_not(first, parts.end(), is_part)};
  }
  const std::int32_t* labels(const operand& x) const { return feeds[x.index].labels; }
  T* write(const operand& x) const;
  /// True if this result is 0 before the run (run_arguments::tables_cleared).
  bool is_cleared(const operand& x) const {
    return tables_cleared && x.where == operand::place::gradient
      && std::ranges::any_of(what->row_sparse_gradients(), [&](const auto& table) {
             return what->parameters().entries()[table.parameter].offset == x.index;
           });
  }
  std::size_t elements(const operand& x) const { return x.shape.elements(rows); }
  /// True if the result x is the number of correct samples (plan_options::correct).
  bool counts(const operand& x) const {
    const auto& requested = what->correct();
    return requested.exists() && x.where == requested.where && x.index == requested.index;
  }

  /// The number of the last instruction that writes the loss. ~0 if no instruction writes it.
  std::size_t loss_instruction = ~std::size_t{0};
  /// The scalar result of the last instruction in double, before it was rounded to T. Empty if the
  /// instruction did not call write_scalar().
  std::optional<double> scalar;
  std::size_t correct = 0;
  std::size_t counted = 0;

  /// For each instruction, the sums over all workers that it needs. Empty for an instruction that
  /// needs none. The sums are kept after the run, because find_not_finite() uses them.
  std::vector<std::vector<double>> sums;
  /// Number of samples of all workers in the run. Empty if this is the only worker, or before
  /// give_sums().
  std::optional<std::size_t> all_rows;

  const double* totals(const instruction& x) const {
    const auto& result = sums[static_cast<std::size_t>(&x - code.instructions.data())];
    return all_rows && !result.empty() ? result.data() : nullptr;
  }
  /// Number of samples on which the result of an instruction depends. If node::key is not 0, these
  /// are the samples of all workers, otherwise those of this worker.
  std::size_t rows_of(const instruction& x) const {
    return x.key != 0 ? all_rows.value_or(rows) : rows;
  }

  /// How far a run has come: the next instruction, the next bucket, and the loss so far.
  struct position {
    std::size_t instruction = 0;
    std::size_t bucket = 0;
    double loss = 0;
    /// asked: true if on_sums has been called for the next instruction. given: true if give_sums()
    /// has supplied these sums.
    bool asked = false;
    bool given = false;
  };
  std::optional<position> under_way;

  /// True if the instruction reads a weight that is not available yet.
  bool misses_weights(const instruction& x) const {
    const auto missing = [&](const operand& from) {
      return from.where == operand::place::weight && weights[from.index] == nullptr;
    };
    return std::ranges::any_of(x.inputs, missing) || missing(x.bias) || missing(x.epilogue_operand);
  }
  void begin();

  /// The number of threads that share n units of work. Each thread gets at least `least` units.
  std::size_t parts_of(std::size_t n, std::size_t least) const {
    return team ? std::clamp<std::size_t>(n / std::max<std::size_t>(least, 1), 1, team->size()) : 1;
  }
  /// Divides [0, n) into parts, one per thread, and calls f(part, thread) for each part. Each part
  /// has at least `least` elements; if n is too small for two such parts, there is only one. Only
  /// for results whose bits do not depend on the division.
  template <class F>
  void split(std::size_t n, std::size_t least, F f) {
    const auto parts = parts_of(n, least);
    if (parts == 1) {
      f(range{0, n}, std::size_t{0});
      return;
    }
    team->run([&](std::size_t thread) {
      if (thread < parts)
        f(part_of(n, parts, thread), thread);
    });
  }
  /// Like split(), for rows of `columns` elements.
  template <class F>
  void split_rows(std::size_t rows, std::size_t columns, F f) {
    split(rows, least_elements / std::max<std::size_t>(columns, 1) + 1, f);
  }
  T* scratch_of(std::size_t thread) const { return scratch.get() + thread * scratch_size; }

  /// Runs instruction i of `code`.
  void execute(std::size_t i);
  /// Copies the elements of `from` to `to`, and converts them if the types differ.
  void convert(const operand& from, const operand& to);
  /// Returns true if the next instruction can run: it needs no sums over all workers, or has them.
  /// Otherwise, requests the sums with on_sums, but only once, and returns false.
  bool has_sums(const run_arguments<T>& arguments);
  std::size_t extent(const operand& x, std::size_t axis) const {
    return x.shape[axis] == shape::batch ? rows : static_cast<std::size_t>(x.shape[axis]);
  }
  /// The product of the sizes of axes [first, last).
  std::size_t extents(const operand& x, std::size_t first, std::size_t last) const {
    std::size_t result = 1;
    for (auto axis = first; axis < last; ++axis)
      result *= extent(x, axis);
    return result;
  }
  void write_scalar(const operand& where, double value);
  double loss() const;
};

} // namespace troupe
