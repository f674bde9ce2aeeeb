#include "kernels/cuda/convolution.hpp"

#include "kernels/cuda/convolution_problems.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/tensor_core.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <type_traits>

namespace troupe::cuda {

namespace {

/// The sizes of the products: (m, n) for each group. The sum over k is divided into parts.
struct product_sizes {
  unsigned m, n, k, groups, parts;
};

/// The task of a block of threads: one tile of the product of one group, in one part of the sum.
struct product_task {
  unsigned i0, j0, group, part, begin, end;

  /// The number of tasks.
  static constexpr std::size_t count(const product_sizes& size, unsigned rows, unsigned columns) {
    return (std::size_t{size.m} + rows - 1) / rows * ((std::size_t{size.n} + columns - 1) / columns)
      * size.groups * size.parts;
  }
  TROUPE_DEVICE product_task(const product_sizes& size, unsigned rows, unsigned columns,
                             std::size_t task) {
    const auto down = (size.m + rows - 1) / rows;
    const auto across = (size.n + columns - 1) / columns;
    i0 = static_cast<unsigned>(task % down) * rows;
    j0 = static_cast<unsigned>(task / down % across) * columns;
    group = static_cast<unsigned>(task / down / across % size.groups);
    part = static_cast<unsigned>(task / down / across / size.groups);
    begin = static_cast<unsigned>(std::size_t{size.k} * part / size.parts);
    end = static_cast<unsigned>(std::size_t{size.k} * (part + 1) / size.parts);
  }
};

/// The elements that a thread loads: of a tile of `a`, shape (rows, depth), and of a tile of `b`,
/// shape (depth, columns). Neighbouring threads load elements that are neighbours in memory.
template <class Problem, unsigned rows, unsigned columns, unsigned depth>
struct loaded_elements {
  using type = typename Problem::type;
  static constexpr unsigned a_count = rows * depth / block_threads;
  static constexpr unsigned b_count = columns * depth / block_threads;
  type a[a_count];
  type b[b_count];

  // Row and column, in the tile, of the r-th element that thread t loads. For one thread, either
  // the row or the column is the same for all r.
  static TROUPE_DEVICE unsigned a_row(const thread& t, unsigned r) {
    return (t.index() + r * block_threads) / depth;
  }
  static TROUPE_DEVICE unsigned a_column(const thread& t) { return t.index() % depth; }
  static TROUPE_DEVICE unsigned b_row(const thread& t, unsigned r) {
    return Problem::runs_down ? t.index() % depth : (t.index() + r * block_threads) / columns;
  }
  static TROUPE_DEVICE unsigned b_column(const thread& t, unsigned r) {
    return Problem::runs_down ? (t.index() + r * block_threads) / depth : t.index() % columns;
  }
  static_assert(block_threads % depth == 0 && block_threads % columns == 0);

  /// Loads elements of the tile of a that begins at (task.i0, k0), and of the tile of b that begins
  /// at (k0, task.j0). Elements outside the matrices are 0.
  TROUPE_DEVICE void load(const thread& t, const Problem& problem, const product_sizes& size,
                          const product_task& task, unsigned k0) {
    const auto ka = k0 + a_column(t);
    TROUPE_UNROLL
    for (unsigned r = 0; r < a_count; ++r) {
      const auto i = task.i0 + a_row(t, r);
      a[r] = i < size.m && ka < task.end ? problem.a(task.group, i, ka) : type{};
    }
    typename Problem::row row{};
    typename Problem::column column{};
    TROUPE_UNROLL
    for (unsigned r = 0; r < b_count; ++r) {
      const auto k = k0 + b_row(t, r);
      const auto j = task.j0 + b_column(t, r);
      if (r == 0 || !Problem::runs_down)
        row = problem.row_at(k);
      if (r == 0 || Problem::runs_down)
        column = problem.column_at(j);
      b[r] = j < size.n && k < task.end ? problem.b(task.group, row, column) : type{};
    }
  }
};

// -- float32

/// A tile of the result is (edge, edge). In each step, a block adds `depth` terms to the sums of
/// its tile. Each thread computes (own, own) elements.
constexpr unsigned edge = 64;
constexpr unsigned depth = 16;
constexpr unsigned own = 4;
/// The number of threads along an edge of a tile.
constexpr unsigned along = edge / own;
static_assert(along * along == block_threads);
/// The distance between rows of a tile in shared memory. It is padded, so that the threads of a
/// warp write to different memory banks.
constexpr unsigned tile_row = edge + 1;
/// The number of elements of shared memory. The memory holds tiles of both operands, and later the
/// tile of the result.
constexpr std::size_t tile_elements = std::max(2 * depth * tile_row, edge* edge);

template <class Problem>
struct implicit_product {
  using many_registers = void;
  static constexpr unsigned rows = edge;
  static constexpr unsigned columns = edge;
  static constexpr std::size_t shared_bytes = tile_elements * sizeof(float);
  Problem problem;
  product_sizes size;

  using elements = loaded_elements<Problem, edge, edge, depth>;

  static TROUPE_DEVICE void store(const thread& t, const view<float>& tiles, const elements& x) {
    TROUPE_UNROLL
    for (unsigned r = 0; r < elements::a_count; ++r)
      tiles.store(elements::a_column(t) * tile_row + elements::a_row(t, r), x.a[r]);
    TROUPE_UNROLL
    for (unsigned r = 0; r < elements::b_count; ++r)
      tiles.store((depth + elements::b_row(t, r)) * tile_row + elements::b_column(t, r), x.b[r]);
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto tiles = t.shared<float>(tile_elements);
    const auto tx = t.index() % along;
    const auto ty = t.index() / along;
    const auto tasks = product_task::count(size, edge, edge);
    for (auto number = t.block(); number < tasks; number += t.blocks()) {
      const product_task task(size, edge, edge, number);
      float sums[own][own] = {};
      for (auto k0 = task.begin; k0 < task.end; k0 += depth) {
        elements x;
        x.load(t, problem, size, task, k0);
        store(t, tiles, x);
        t.barrier();
        for (unsigned p = 0; p < depth; ++p) {
          float a[own];
          float b[own];
          for (unsigned r = 0; r < own; ++r) {
            a[r] = tiles.load(p * tile_row + ty + r * along);
            b[r] = tiles.load((depth + p) * tile_row + tx + r * along);
          }
          for (unsigned r = 0; r < own; ++r)
            for (unsigned s = 0; s < own; ++s)
              sums[r][s] = std::fma(a[r], b[s], sums[r][s]);
        }
        t.barrier();
      }
      // The results go through shared memory, so that neighbouring threads write neighbouring
      // elements.
      for (unsigned r = 0; r < own; ++r)
        for (unsigned s = 0; s < own; ++s)
          tiles.store((ty + r * along) * edge + tx + s * along, sums[r][s]);
      t.barrier();
      for (unsigned x = t.index(); x < edge * edge; x += block_threads)
        if (task.i0 + x / edge < size.m && task.j0 + x % edge < size.n)
          problem.store(task.group, task.part, task.i0 + x / edge, task.j0 + x % edge,
                        tiles.load(x));
      t.barrier();
    }
  }
};

// -- 16 bits

/// A product of 16-bit elements by tensor cores. The warps of a block are arranged in 2 rows and 4
/// columns. Each warp computes a part (32, 32) of a tile of the result. Before the warps multiply
/// in one step, the threads start to load the elements of the next step into registers.
template <class Problem>
struct tensor_product {
  using type = typename Problem::type;
  static constexpr unsigned rows = 64;
  static constexpr unsigned columns = 128;
  static constexpr unsigned step = tensor_edge;
  static constexpr unsigned warp_edge = 32;
  static constexpr unsigned tiles = warp_edge / tensor_edge;
  static_assert(rows / warp_edge * (columns / warp_edge) == block_warps);
  /// Tiles are stored in the order in which they are loaded: a by rows; b by columns if
  /// Problem::runs_down is true, otherwise by rows.
  static constexpr unsigned a_row = step + tensor_row;
  static constexpr unsigned b_row = (Problem::runs_down ? step : columns) + tensor_row;
  static constexpr unsigned a_elements = rows * a_row;
  static constexpr unsigned b_elements = (Problem::runs_down ? columns : step) * b_row;
  /// The distance between rows of the result in shared memory. The lanes of a warp write elements
  /// of 8 rows. With this distance, at most two lanes write to the same memory bank.
  static constexpr unsigned result_row = columns + 4;
  static constexpr std::size_t shared_bytes = std::max<std::size_t>(
    (a_elements + b_elements) * sizeof(type), rows* result_row * sizeof(float));
  Problem problem;
  product_sizes size;

  using elements = loaded_elements<Problem, rows, columns, step>;

  static TROUPE_DEVICE void store(const thread& t, const tile_memory<type>& a,
                                  const tile_memory<type>& b, const elements& x) {
    TROUPE_UNROLL
    for (unsigned r = 0; r < elements::a_count; ++r)
      a.store(elements::a_row(t, r), elements::a_column(t), x.a[r]);
    TROUPE_UNROLL
    for (unsigned r = 0; r < elements::b_count; ++r) {
      const auto row = elements::b_row(t, r);
      const auto column = elements::b_column(t, r);
      b.store(Problem::runs_down ? column : row, Problem::runs_down ? row : column, x.b[r]);
    }
  }

  /// Loads the tile of b that begins at column j.
  static TROUPE_DEVICE right_tile<type> right(const thread& t, const tile_memory<type>& b,
                                              unsigned j) {
    if constexpr (Problem::runs_down)
      return load_right_transposed(t, b.at(j, 0));
    else
      return load_right(t, b.at(0, j));
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto memory = t.shared<type>(a_elements + b_elements);
    const auto result = t.shared<float>(rows * result_row);
    const tile_memory<type> a{memory, 0, a_row};
    const tile_memory<type> b{memory, a_elements, b_row};
    const auto row = t.warp() / (columns / warp_edge) * warp_edge;
    const auto column = t.warp() % (columns / warp_edge) * warp_edge;
    const auto tasks = product_task::count(size, rows, columns);
    for (auto number = t.block(); number < tasks; number += t.blocks()) {
      const product_task task(size, rows, columns, number);
      sum_tile sums[tiles][tiles] = {};
      elements next;
      next.load(t, problem, size, task, task.begin);
      for (auto k0 = task.begin; k0 < task.end; k0 += step) {
        t.barrier(); // all threads have read the old contents of this memory
        store(t, a, b, next);
        t.barrier();
        if (k0 + step < task.end)
          next.load(t, problem, size, task, k0 + step);
        right_tile<type> y[tiles];
        for (unsigned s = 0; s < tiles; ++s)
          y[s] = right(t, b, column + s * tensor_edge);
        for (unsigned r = 0; r < tiles; ++r) {
          const auto x = load_left(t, a.at(row + r * tensor_edge, 0));
          for (unsigned s = 0; s < tiles; ++s)
            add_product(t, x, y[s], sums[r][s]);
        }
      }
      t.barrier();
      for (unsigned r = 0; r < tiles; ++r)
        for (unsigned s = 0; s < tiles; ++s)
          for (unsigned i = 0; i < sum_tile::size; ++i)
            result.store((row + r * tensor_edge + sum_tile::row(t.lane(), i)) * result_row + column
                           + s * tensor_edge + sum_tile::column(t.lane(), i),
                         sums[r][s].x[i]);
      t.barrier();
      for (unsigned x = t.index(); x < rows * columns; x += block_threads) {
        const auto i = x / columns;
        const auto j = x % columns;
        if (task.i0 + i < size.m && task.j0 + j < size.n)
          problem.store(task.group, task.part, task.i0 + i, task.j0 + j,
                        result.load(i * result_row + j));
      }
    }
  }
};

// -- launches

std::size_t weights_of(const images& in, const images& out, const window& how) {
  return out.channels * in.channels / static_cast<std::size_t>(how.groups)
    * static_cast<std::size_t>(how.height * how.width);
}

template <class Problem>
void launch_product(stream where, const char* name, const Problem& problem, std::size_t m,
                    std::size_t n, std::size_t k, std::size_t parts) {
  const auto number = [](std::size_t x) { return static_cast<unsigned>(x); };
  const product_sizes size{number(m), number(n), number(k), problem.size.groups, number(parts)};
  using kernel = std::conditional_t<std::is_same_v<typename Problem::type, float>,
                                    implicit_product<Problem>, tensor_product<Problem>>;
  launch(
    where, name,
    {blocks_for(product_task::count(size, kernel::rows, kernel::columns), 1), kernel::shared_bytes},
    kernel{problem, size});
}

convolution_output<view<float>> output_of(const float* bias, std::size_t channels, ending last,
                                          view<float> out) {
  if (is_narrow(last.type))
    throw std::invalid_argument("conv2d: the operand of the epilogue is not float32");
  return {{bias, channels}, {static_cast<const float*>(last.operand), out.size}, out, last.after};
}
template <class Out>
convolution_output<Out> output_of(const float* bias, std::size_t channels, ending last, Out out) {
  return {{bias, channels}, {last.operand, out.size, last.type}, out, last.after};
}

} // namespace

void conv2d(stream where, const images& in, const images& out, const window& how, mixed_input x,
            mixed_input w, const float* bias, ending last, mixed_output y) {
  const convolution_sizes size(in, out, how);
  const auto n = out.count * out.per_image();
  const auto all_weights = weights_of(in, out, how);
  with_elements(
    y, n,
    [&]<class T>(auto to, view<const T> from, view<const T> weights) {
      launch_product(where, "conv2d",
                     forward_problem<T, decltype(to)>{size, from, weights,
                                                      output_of(bias, out.channels, last, to)},
                     out.channels / size.groups, out.count * out.pixels(),
                     all_weights / out.channels, 1);
    },
    read_elements{x, in.count * in.per_image()}, read_elements{w, all_weights});
}

void conv2d_input_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_input w, const float* bias, ending last,
                           mixed_output dx) {
  const convolution_sizes size(in, out, how);
  const auto n = in.count * in.per_image();
  const auto all_weights = weights_of(in, out, how);
  with_elements(
    dx, n,
    [&]<class T>(auto to, view<const T> gradient, view<const T> weights) {
      launch_product(where, "conv2d_input_gradient",
                     input_gradient_problem<T, decltype(to)>{
                       size, gradient, weights, output_of(bias, in.channels, last, to)},
                     in.channels / size.groups, in.count * in.pixels(),
                     all_weights / (in.channels / size.groups) / size.groups, 1);
    },
    read_elements{dy, out.count * out.per_image()}, read_elements{w, all_weights});
}

std::size_t weight_gradient_parts(const images& in, const images& out, const window& how) noexcept {
  // The number of blocks is large enough for a large GPU, and each part has at least 256 terms.
  const auto groups = static_cast<std::size_t>(how.groups);
  const auto number = [](std::size_t x) { return static_cast<unsigned>(x); };
  const auto tiles =
    product_task::count({number(out.channels / groups),
                         number(weights_of(in, out, how) / out.channels), 0, number(groups), 1},
                        edge, edge);
  const auto most = std::max<std::size_t>(512 / std::max<std::size_t>(tiles, 1), 1);
  return std::clamp<std::size_t>(out.count * out.pixels() / 256, 1, most);
}

void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            mixed_input x, mixed_input dy, double* space, float* dw) {
  const convolution_sizes size(in, out, how);
  const auto weights = weights_of(in, out, how);
  const auto parts = weight_gradient_parts(in, out, how);
  with_elements(
    mixed_output{nullptr, x.type}, 0,
    [&]<class T>(auto, view<const T> from, view<const T> gradient) {
      launch_product(where, "conv2d_weight_gradient",
                     weight_gradient_problem<T>{size, from, gradient, {space, parts * weights}},
                     out.channels / size.groups, weights / out.channels, out.count * out.pixels(),
                     parts);
    },
    read_elements{x, in.count * in.per_image()}, read_elements{dy, out.count * out.per_image()});
  add_parts(where, parts, weights, space, dw);
}

} // namespace troupe::cuda
