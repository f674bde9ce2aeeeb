#pragma once

#include "kernels/cuda/convolution_problems.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

// Products of matrices whose operands are gathered from images (kernels/cuda/convolution.hpp): how
// the work is divided, how a block loads tiles of the operands, and the kernel for float32.

namespace troupe::cuda {

/// The sizes of the products, and how they are divided into tasks for blocks of threads. Each group
/// has a product (m, n). A task computes one tile (rows, columns) of one product. If the sum over k
/// is divided into parts, the task computes one part of it. m, n and k are less than size_limit
/// (size_limits.hpp).
struct product_sizes {
  unsigned m, n, k;
  std::size_t tasks;
  divider down, across, groups, parts; // tiles along m and n, groups and parts

  product_sizes(std::size_t all_m, std::size_t all_n, std::size_t all_k, std::size_t all_groups,
                std::size_t all_parts, unsigned rows, unsigned columns)
    : m(static_cast<unsigned>(all_m)), n(static_cast<unsigned>(all_n)),
      k(static_cast<unsigned>(all_k)) {
    const auto tiles_down = (all_m + rows - 1) / rows;
    const auto tiles_across = (all_n + columns - 1) / columns;
    tasks = tiles_down * tiles_across * all_groups * all_parts;
    down = {tiles_down, tasks};
    across = {tiles_across, tasks};
    groups = {all_groups, tasks};
    parts = {all_parts, (all_k + 1) * all_parts};
  }
};

/// One task: it computes a tile of the product of `group`. The tile begins at row i0 and column j0.
/// Of the sum over k, the task adds up part number `part`: the terms [begin, end).
struct product_task {
  unsigned i0, j0, group, part, begin, end;

  TROUPE_DEVICE product_task(const product_sizes& size, unsigned rows, unsigned columns,
                             std::size_t task) {
    const auto row = size.down(task);
    const auto column = size.across(row.quotient);
    const auto rest = size.groups(column.quotient);
    i0 = static_cast<unsigned>(row.rest) * rows;
    j0 = static_cast<unsigned>(column.rest) * columns;
    group = static_cast<unsigned>(rest.rest);
    part = static_cast<unsigned>(rest.quotient);
    begin = static_cast<unsigned>(size.parts.quotient(std::size_t{size.k} * part));
    end = static_cast<unsigned>(size.parts.quotient(std::size_t{size.k} * (part + 1)));
  }
};

/// The elements that a thread loads in one step: of a tile of `a`, shape (rows, depth), and of a
/// tile of `b`, shape (depth, columns). Neighbouring threads load elements that are neighbours in
/// memory. The position of an element of b has two halves (convolution_problems.hpp). One half, its
/// `place`, is the same for all elements that a thread loads in a step. The other halves are in a
/// table in shared memory.
template <class Problem, unsigned rows, unsigned columns, unsigned depth>
struct loaded_elements {
  using type = typename Problem::type;
  static constexpr bool runs_down = Problem::runs_down;
  static constexpr unsigned a_count = rows * depth / block_threads;
  static constexpr unsigned b_count = columns * depth / block_threads;
  /// If runs_down is true, a thread loads groups of this many neighbouring columns of b.
  static constexpr unsigned group = std::is_same_v<type, float> ? 4 : 1;
  /// If runs_down is true, the table has an entry for each column of the tile. Otherwise, it has an
  /// entry for each row of b in 2 * table_steps steps. While some threads still read the entries of
  /// table_steps steps, other threads write the entries of the next table_steps steps.
  static constexpr unsigned table_steps = 8;
  static constexpr unsigned table_size = runs_down ? columns : 2 * table_steps * depth;
  static_assert(block_threads % depth == 0 && block_threads % columns == 0
                && table_size <= block_threads && b_count % group == 0);
  place<type> where;
  type a[a_count];
  type b[b_count];

  // Row and column, in the tile, of the r-th element that thread t loads.
  static TROUPE_DEVICE unsigned a_row(const thread& t, unsigned r) {
    return t.index() / depth * a_count + r;
  }
  static TROUPE_DEVICE unsigned a_column(const thread& t) { return t.index() % depth; }
  static TROUPE_DEVICE unsigned b_row(const thread& t, unsigned r) {
    return runs_down ? t.index() % depth : t.index() / columns + r * (block_threads / columns);
  }
  static TROUPE_DEVICE unsigned b_column(const thread& t, unsigned r) {
    return runs_down ? (t.index() / depth + r / group * (block_threads / depth)) * group + r % group
                     : t.index() % columns;
  }

  /// The number of steps of a task.
  static TROUPE_DEVICE unsigned steps(const product_task& task) {
    return (task.end - task.begin + depth - 1) / depth;
  }

  /// Begins a task: writes the first table entries. Must be called once for each task, before the
  /// first call of load().
  TROUPE_DEVICE void start(const thread& t, const Problem& problem, const product_sizes& size,
                           const product_task& task, const view<half_position>& table) {
    if constexpr (runs_down) {
      const auto j = task.j0 + t.index();
      if (t.index() < columns)
        table.store(t.index(), j < size.n ? problem.element_at(j) : no_element);
    } else {
      const auto j = task.j0 + b_column(t, 0);
      where = problem.place_at(task.group, std::min(j, size.n - 1));
      if (j >= size.n)
        where.at.phase = no_place;
      prepare(t, problem, task, 0, table);
    }
  }

  /// Writes the table entries of a step. Must be called before load() of the same step, with a
  /// barrier between the two calls.
  static TROUPE_DEVICE void prepare(const thread& t, const Problem& problem,
                                    const product_task& task, unsigned step,
                                    const view<half_position>& table) {
    if constexpr (!runs_down) {
      if (step % table_steps != 0 || t.index() >= table_size / 2)
        return;
      const auto k = task.begin + step * depth + t.index();
      table.store((step * depth + t.index()) % table_size,
                  k < task.end ? problem.element_at(k) : no_element);
    }
  }

  /// Loads the elements of a step. Elements outside the matrices are 0.
  TROUPE_DEVICE void load(const thread& t, const Problem& problem, const product_sizes& size,
                          const product_task& task, unsigned step,
                          const view<half_position>& table) {
    const auto k0 = task.begin + step * depth;
    if constexpr (runs_down) {
      const auto k = k0 + b_row(t, 0);
      where = problem.place_at(task.group, std::min(k, task.end - 1));
      if (k >= task.end)
        where.at.phase = no_place;
    }
    const auto first = runs_down ? 0 : step * depth % table_size;
    TROUPE_UNROLL
    for (unsigned r = 0; r < b_count; ++r)
      b[r] = where.load(table.load(first + (runs_down ? b_column(t, r) : b_row(t, r))),
                        problem.height(), problem.width());
    const auto k = k0 + a_column(t);
    const auto i = task.i0 + a_row(t, 0);
    const auto begin = problem.left_at(task.group, k) + i * problem.left_row();
    TROUPE_UNROLL
    for (unsigned r = 0; r < a_count; ++r)
      a[r] = (i + r < size.m) & (k < task.end) ? problem.left().load(begin + r * problem.left_row())
                                               : type{};
  }
};

/// Copies a tile of the result from shared memory to device memory. A sum may consist of several
/// slices (product_shape), which are added up here. Slice s of the sum of element (i, j) is at (s *
/// rows + i) * row + j. Neighbouring threads write neighbouring elements.
template <unsigned rows, unsigned columns, unsigned row, unsigned slices, class Problem>
TROUPE_DEVICE void store_results(const thread& t, const Problem& problem, const product_sizes& size,
                                 const product_task& task, const view<float>& result) {
  const auto j = t.index() % columns;
  if (task.j0 + j >= size.n)
    return;
  const auto column = problem.result_at(task.part, task.j0 + j);
  for (auto i = t.index() / columns; i < rows && task.i0 + i < size.m;
       i += block_threads / columns) {
    auto sum = result.load(i * row + j);
    TROUPE_UNROLL
    for (unsigned s = 1; s < slices; ++s)
      sum += result.load((s * rows + i) * row + j);
    problem.store(column, task.group * size.m + task.i0 + i, sum);
  }
}

/// How a block computes a tile (rows, columns) of a product of float32. In each step, it adds
/// `depth` terms to each sum. A thread computes (own_rows, 4) elements, and a warp has 4 rows and 8
/// columns of threads. If the tile needs fewer warps than a block has, the terms of a step are
/// divided into slices: some warps add up the first terms, other warps the next ones.
template <unsigned Rows, unsigned Columns, unsigned OwnRows, unsigned Depth>
struct product_shape {
  static constexpr unsigned rows = Rows;
  static constexpr unsigned columns = Columns;
  static constexpr unsigned own_rows = OwnRows;
  static constexpr unsigned depth = Depth;
  static constexpr unsigned own_columns = 4;
  static constexpr unsigned warp_rows = 4 * own_rows;
  static constexpr unsigned warp_columns = 8 * own_columns;
  static constexpr unsigned warps = rows / warp_rows * (columns / warp_columns);
  static constexpr unsigned slices = block_warps / warps;
  static constexpr unsigned slice_depth = depth / slices;
  static_assert(own_rows % 4 == 0 && rows % warp_rows == 0 && columns % warp_columns == 0
                && block_warps % warps == 0 && depth % slices == 0);
};

/// Four neighbouring elements of shared memory, which a single instruction reads or writes.
struct alignas(16) four_floats {
  static constexpr unsigned size = 4;
  float x[size];
};

/// A product of float32. Before the block multiplies in one step, the threads start to load the
/// elements of the next step into registers. Shared memory has tiles of two steps, so threads may
/// write the next tile while other threads still read the previous one.
template <class Problem, class Shape>
struct implicit_product {
  using shape = Shape;
  static constexpr unsigned rows = shape::rows;
  static constexpr unsigned columns = shape::columns;
  using elements = loaded_elements<Problem, rows, columns, shape::depth>;
  static constexpr unsigned four = four_floats::size;
  /// The distance between rows of a tile in shared memory, in groups of four floats. The tile of a
  /// is stored transposed: its row k is column k of a. Because of the padding (+ 1), threads of a
  /// warp that write to neighbouring rows use different memory banks.
  static constexpr unsigned a_row = rows / four + 1;
  static constexpr unsigned b_row = columns / four + 1;
  static constexpr unsigned tiles = shape::depth * (a_row + b_row);
  static constexpr unsigned results = shape::slices * rows * columns / four; // in groups of four
  static constexpr unsigned memory = std::max(2 * tiles, results);
  static constexpr unsigned tables = elements::table_size;
  static constexpr std::size_t shared_bytes =
    memory * sizeof(four_floats) + tables * sizeof(half_position);
  Problem problem;
  product_sizes size;

  /// The first row and the first column of a thread in the tile, and the slice of the thread
  /// (product_shape).
  struct own_place {
    unsigned row, column, slice;

    TROUPE_DEVICE explicit own_place(const thread& t) {
      constexpr auto across = columns / shape::warp_columns;
      const auto warp = t.warp() % shape::warps;
      // Lanes i and i ^ 1 have the same columns, and lanes i and i ^ 2 have the same rows. A GPU
      // can then serve 16 lanes, and not only 8, by one access to four floats of shared memory.
      row = warp / across * shape::warp_rows + (t.lane() / 16 * 2 + t.lane() % 2) * four;
      column = warp % across * shape::warp_columns + t.lane() / 2 % 8 * four;
      slice = t.warp() / shape::warps;
    }
  };
  /// Returns the number, in the tile, of a thread's r-th row. The rows of a thread are groups of
  /// four neighbouring rows. Each group begins 16 rows after the previous one.
  static TROUPE_DEVICE unsigned row_of(const own_place& own, unsigned r) {
    return own.row + r / four * 4 * four + r % four;
  }

  /// Writes to the tiles: the elements that a thread has loaded. The tiles begin at element
  /// `first` of `fours`.
  static TROUPE_DEVICE void store(const thread& t, const view<float>& floats,
                                  const view<four_floats>& fours, unsigned first,
                                  const elements& x) {
    const auto a = first + elements::a_column(t) * a_row;
    if constexpr (elements::a_count % four == 0) {
      TROUPE_UNROLL
      for (unsigned r = 0; r < elements::a_count; r += four)
        fours.store(a + elements::a_row(t, r) / four, {x.a[r], x.a[r + 1], x.a[r + 2], x.a[r + 3]});
    } else {
      TROUPE_UNROLL
      for (unsigned r = 0; r < elements::a_count; ++r)
        floats.store(a * four + elements::a_row(t, r), x.a[r]);
    }
    const auto b = first + shape::depth * a_row;
    if constexpr (Problem::runs_down) {
      TROUPE_UNROLL
      for (unsigned r = 0; r < elements::b_count; r += four)
        fours.store(b + elements::b_row(t, r) * b_row + elements::b_column(t, r) / four,
                    {x.b[r], x.b[r + 1], x.b[r + 2], x.b[r + 3]});
    } else {
      TROUPE_UNROLL
      for (unsigned r = 0; r < elements::b_count; ++r)
        floats.store((b + elements::b_row(t, r) * b_row) * four + elements::b_column(t, r), x.b[r]);
    }
  }

  using sums = float[shape::own_rows][shape::own_columns];

  /// Multiplies the tiles that begin at element `first` of `fours`. Adds the products to `sum`.
  static TROUPE_DEVICE void multiply(const view<four_floats>& fours, const own_place& own,
                                     unsigned first, sums& sum) {
    const auto k0 = own.slice * shape::slice_depth;
    const auto a = first + k0 * a_row + own.row / four;
    const auto b = first + shape::depth * a_row + k0 * b_row + own.column / four;
    TROUPE_UNROLL
    for (unsigned p = 0; p < shape::slice_depth; ++p) {
      const auto y = fours.load(b + p * b_row);
      TROUPE_UNROLL
      for (unsigned q = 0; q < shape::own_rows / four; ++q) {
        const auto x = fours.load(a + p * a_row + q * four);
        TROUPE_UNROLL
        for (unsigned r = 0; r < four; ++r) {
          TROUPE_UNROLL
          for (unsigned s = 0; s < four; ++s)
            sum[q * four + r][s] = std::fma(x.x[r], y.x[s], sum[q * four + r][s]);
        }
      }
    }
  }

  /// Adds up the terms of a task. Before the call, all threads must have finished reading shared
  /// memory.
  TROUPE_DEVICE void add_up(const thread& t, const product_task& task, const own_place& own,
                            const view<float>& floats, const view<four_floats>& fours,
                            sums& sum) const {
    const view<half_position> table{t.shared<half_position>(memory + tables).data + memory, tables};
    const auto steps = elements::steps(task);
    if (steps == 0)
      return;
    elements next;
    next.start(t, problem, size, task, table);
    t.barrier();
    next.load(t, problem, size, task, 0, table);
    unsigned tile = 0; // where the tiles of this step begin
    for (unsigned step = 0; step < steps; ++step) {
      store(t, floats, fours, tile, next);
      elements::prepare(t, problem, task, step + 1, table);
      t.barrier();
      if (step + 1 < steps)
        next.load(t, problem, size, task, step + 1, table);
      multiply(fours, own, tile, sum);
      tile = tiles - tile;
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto floats = t.shared<float>(memory * four);
    const auto fours = t.shared<four_floats>(memory);
    const own_place own(t);
    for (auto number = t.block(); number < size.tasks; number += t.blocks()) {
      const product_task task(size, rows, columns, number);
      sums sum = {};
      add_up(t, task, own, floats, fours, sum);
      t.barrier();
      TROUPE_UNROLL
      for (unsigned r = 0; r < shape::own_rows; ++r)
        fours.store(((own.slice * rows + row_of(own, r)) * columns + own.column) / four,
                    {sum[r][0], sum[r][1], sum[r][2], sum[r][3]});
      t.barrier();
      store_results<rows, columns, columns, shape::slices>(t, problem, size, task, floats);
      t.barrier();
    }
  }
};

} // namespace troupe::cuda
