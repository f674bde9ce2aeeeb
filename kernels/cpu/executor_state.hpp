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

// Internal to the executor. Its instructions are in kernels/cpu/operation_table.hpp.

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
  std::fill_n(p, n, T(0)); // touches the pages now instead of in the first run
  return aligned_array<T>(p);
}

/// Throws std::invalid_argument if the rows and feeds of a run do not fit the plan.
template <class T>
void check_feeds(const plan& what, std::size_t rows, std::span<const feed<T>> feeds);

/// A tensor as a matrix: all leading dimensions by the last one.
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

/// Below this number of elements, or of multiply-adds, dividing the work costs more than it saves:
/// another thread must be notified, and its operands are mostly in the cache of another processor.
inline constexpr std::size_t least_elements = std::size_t{1} << 15;
inline constexpr std::size_t least_products = std::size_t{1} << 20;
/// A sum over rows is computed in this many blocks of rows with any number of threads. The bits of
/// the result therefore do not depend on that number.
inline constexpr std::size_t row_blocks = 16;

template <class T>
struct executor_state {
  explicit executor_state(std::shared_ptr<const plan> instructions);

  std::shared_ptr<const plan> what;
  /// The instructions that run.
  widened_instructions code;
  aligned_array<T> arena;
  /// scratch_size elements for each thread.
  aligned_array<T> scratch;
  std::size_t scratch_size = 0;
  /// Absent if there is one thread.
  std::unique_ptr<thread_team> team;
  // Arguments of the last run, copied into vectors of the right size.
  std::size_t rows = 0;
  std::vector<const T*> weights;
  std::vector<feed<T>> feeds;
  /// Borrowed from the caller.
  std::span<const weight_rows<T>> parts;
  /// Scratch space that all threads share.
  aligned_array<T> shared;
  /// Pointers for a chain: register_count for each thread.
  std::vector<const T*> registers;
  std::size_t register_count = 0;
  T* gradient = nullptr;
  std::uint64_t seed = 0;

  void bind(const run_arguments<T>& arguments);
  const T* read(const operand& x) const;
  /// Calls f(rows, pointer to the first of these rows) for each place that has rows of a matrix, in
  /// ascending order.
  template <class F>
  void for_rows(const operand& x, F f) const {
    bool cut = false;
    for (const auto& part : parts)
      if (x.where == operand::place::weight && part.weight == x.index) {
        f(part.rows, part.values);
        cut = true;
      }
    if (!cut)
      f(range{0, matrix_extent(x.shape, rows).rows}, read(x));
  }
  const std::int32_t* labels(const operand& x) const { return feeds[x.index].labels; }
  T* write(const operand& x) const;
  std::size_t elements(const operand& x) const { return x.shape.elements(rows); }

  /// The last instruction that writes the loss, or none.
  std::size_t loss_instruction = ~std::size_t{0};
  /// The scalar result of the last instruction before it was rounded to T.
  std::optional<double> scalar;
  std::size_t correct = 0;
  std::size_t counted = 0;

  /// The sums of each instruction over all workers; empty if it needs none. They stay after the
  /// run, for a search.
  std::vector<std::vector<double>> sums;
  /// Number of samples of all workers in the run. Nothing if this is the only worker.
  std::optional<std::size_t> all_rows;

  const double* totals(const instruction& x) const {
    const auto& result = sums[static_cast<std::size_t>(&x - code.instructions.data())];
    return all_rows && !result.empty() ? result.data() : nullptr;
  }
  /// Number of samples that the result of an instruction depends on.
  std::size_t rows_of(const instruction& x) const {
    return x.key != 0 ? all_rows.value_or(rows) : rows;
  }

  /// The progress of a run.
  struct position {
    std::size_t instruction = 0;
    std::size_t bucket = 0;
    double loss = 0;
    /// True if on_sums was called for the instruction; and true if give_sums has answered.
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

  /// The number of threads that share n units of work, if each takes at least `least` units.
  std::size_t parts_of(std::size_t n, std::size_t least) const {
    return team ? std::clamp<std::size_t>(n / std::max<std::size_t>(least, 1), 1, team->size()) : 1;
  }
  /// Calls f(part of [0, n), thread) for all of [0, n), on several threads if each part has at
  /// least `least` elements. Division into parts must not change the bits of a result.
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
  /// Splits rows of `columns` elements.
  template <class F>
  void split_rows(std::size_t rows, std::size_t columns, F f) {
    split(rows, least_elements / std::max<std::size_t>(columns, 1) + 1, f);
  }
  T* scratch_of(std::size_t thread) const { return scratch.get() + thread * scratch_size; }

  /// Runs instruction i of `code`.
  void execute(std::size_t i);
  /// Writes the elements of `from` to `to`, whose type may be another one.
  void convert(const operand& from, const operand& to);
  /// True if the instruction has its sums over all workers. If not, requests them once.
  bool has_sums(const run_arguments<T>& arguments);
  std::size_t extent(const operand& x, std::size_t axis) const {
    return x.shape[axis] == shape::batch ? rows : static_cast<std::size_t>(x.shape[axis]);
  }
  /// Product of the extents of axes [first, last).
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
