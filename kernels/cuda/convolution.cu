#include "kernels/cuda/convolution.hpp"

#include "kernels/cuda/convolution_problems.hpp"
#include "kernels/cuda/implicit_product.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/tensor_core.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace troupe::cuda {

namespace {

// -- 16 bits

/// A product of 16-bit elements by tensor cores. The warps of a block are arranged in 2 rows and 4
/// columns. Each warp computes a part of a tile of the result. Before the warps multiply in one
/// step, the threads start to load the elements of the next step into registers.
template <class Problem, unsigned Rows>
struct tensor_product {
  using type = typename Problem::type;
  static constexpr unsigned rows = Rows;
  static constexpr unsigned columns = 128;
  static constexpr unsigned step = tensor_edge;
  static constexpr unsigned warps_down = 2;
  static constexpr unsigned warps_across = block_warps / warps_down;
  static constexpr unsigned tiles_down = rows / warps_down / tensor_edge;
  static constexpr unsigned tiles_across = columns / warps_across / tensor_edge;
  /// A tile is stored in the order in which it is loaded: the tile of a by rows; the tile of b by
  /// columns if Problem::runs_down is true, otherwise by rows.
  static constexpr unsigned a_row = step + tensor_row;
  static constexpr unsigned b_row = (Problem::runs_down ? step : columns) + tensor_row;
  static constexpr unsigned a_elements = rows * a_row;
  static constexpr unsigned b_elements = (Problem::runs_down ? columns : step) * b_row;
  /// The distance between rows of the result in shared memory. The lanes of a warp write elements
  /// of 8 rows. With this distance, at most two lanes write to the same memory bank.
  static constexpr unsigned result_row = columns + 4;
  using elements = loaded_elements<Problem, rows, columns, step>;
  /// The table of loaded_elements follows the tiles in shared memory. This is the position of its
  /// first entry, in units of half_position.
  static constexpr unsigned table_first =
    std::max<unsigned>((a_elements + b_elements) * sizeof(type), rows* result_row * sizeof(float))
    / sizeof(half_position);
  static constexpr unsigned table_end = table_first + elements::table_size;
  static constexpr std::size_t shared_bytes = table_end * sizeof(half_position);
  Problem problem;
  product_sizes size;

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
    const view<half_position> table{t.shared<half_position>(table_end).data + table_first,
                                    elements::table_size};
    const tile_memory<type> a{memory, 0, a_row};
    const tile_memory<type> b{memory, a_elements, b_row};
    const auto row = t.warp() / warps_across * tiles_down * tensor_edge;
    const auto column = t.warp() % warps_across * tiles_across * tensor_edge;
    for (auto number = t.block(); number < size.tasks; number += t.blocks()) {
      const product_task task(size, rows, columns, number);
      sum_tile sums[tiles_down][tiles_across] = {};
      const auto steps = elements::steps(task);
      elements next;
      if (steps > 0) {
        next.start(t, problem, size, task, table);
        t.barrier();
        next.load(t, problem, size, task, 0, table);
      }
      for (unsigned now = 0; now < steps; ++now) {
        t.barrier(); // all threads have read the old contents of this memory
        store(t, a, b, next);
        elements::prepare(t, problem, task, now + 1, table);
        t.barrier();
        if (now + 1 < steps)
          next.load(t, problem, size, task, now + 1, table);
        right_tile<type> y[tiles_across];
        for (unsigned s = 0; s < tiles_across; ++s)
          y[s] = right(t, b, column + s * tensor_edge);
        for (unsigned r = 0; r < tiles_down; ++r) {
          const auto x = load_left(t, a.at(row + r * tensor_edge, 0));
          for (unsigned s = 0; s < tiles_across; ++s)
            add_product(t, x, y[s], sums[r][s]);
        }
      }
      t.barrier();
      for (unsigned r = 0; r < tiles_down; ++r)
        for (unsigned s = 0; s < tiles_across; ++s)
          for (unsigned i = 0; i < sum_tile::size; ++i)
            result.store((row + r * tensor_edge + sum_tile::row(t.lane(), i)) * result_row + column
                           + s * tensor_edge + sum_tile::column(t.lane(), i),
                         sums[r][s].x[i]);
      t.barrier();
      store_results<rows, columns, result_row, 1>(t, problem, size, task, result);
      t.barrier();
    }
  }
};

/// Adds up the parts of the gradient of weights, in float64. A block computes 8 elements at a time.
/// It has 32 groups of 8 threads, and each group adds up every 32nd part.
struct parts_total {
  static constexpr unsigned columns = 8;
  static constexpr unsigned shares = block_threads / columns;
  static constexpr std::size_t shared_bytes = block_warps * columns * sizeof(double);
  view<const float> partial; // (parts, columns)
  view<float> out;           // (columns)
  std::size_t parts;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto memory = t.shared<double>(block_warps * columns);
    for (auto j0 = t.block() * columns; j0 < out.size; j0 += t.blocks() * columns) {
      const auto j = j0 + t.index() % columns;
      double total = 0;
      if (j < out.size)
        for (std::size_t part = t.index() / columns; part < parts; part += shares)
          total += partial.load(part * out.size + j);
      for (unsigned mask = columns; mask < warp_threads; mask *= 2)
        total += t.shuffle_xor(total, mask);
      if (t.lane() < columns)
        memory.store(t.warp() * columns + t.lane(), total);
      t.barrier();
      if (t.index() < columns && j < out.size) {
        total = 0;
        for (unsigned warp = 0; warp < block_warps; ++warp)
          total += memory.load(warp * columns + t.index());
        out.store(j, static_cast<float>(total));
      }
      t.barrier();
    }
  }
};

// -- launches

std::size_t weights_of(const images& in, const images& out, const window& how) {
  return out.channels * in.channels / static_cast<std::size_t>(how.groups)
    * static_cast<std::size_t>(how.height * how.width);
}

/// Calls f(shape) for each shape of tiles of float32. Gradients of weights have fewer columns than
/// other results, and each element is a longer sum.
template <bool runs_down, class F>
void for_each_shape(F f) {
  if constexpr (runs_down) {
    f(product_shape<16, 32, 4, 64>{});
    f(product_shape<32, 32, 4, 64>{});
    f(product_shape<32, 64, 4, 32>{});
    f(product_shape<64, 64, 8, 32>{});
  } else {
    f(product_shape<16, 128, 4, 16>{});
    f(product_shape<32, 128, 4, 16>{});
    f(product_shape<64, 128, 8, 16>{});
  }
}

/// Calls f(shape) for the shape with the least work. The choice does not depend on the number of
/// images, so the result for an image does not depend on the other images of the batch.
template <bool runs_down, class F>
void with_best_shape(std::size_t m, std::size_t n, F f) {
  const auto work = [&]<class Shape>(Shape) {
    // Loading an element of a tile takes about as long as this many multiplications.
    constexpr std::size_t a_cost = 8;
    constexpr std::size_t b_cost = 12;
    const auto across = runs_down ? (n + Shape::columns - 1) / Shape::columns : 1;
    return (m + Shape::rows - 1) / Shape::rows * across
      * (Shape::rows * Shape::columns + a_cost * Shape::rows + b_cost * Shape::columns);
  };
  auto least = std::numeric_limits<std::size_t>::max();
  for_each_shape<runs_down>([&](auto shape) { least = std::min(least, work(shape)); });
  bool found = false;
  for_each_shape<runs_down>([&](auto shape) {
    if (found || work(shape) != least)
      return;
    found = true;
    f(shape);
  });
}

template <class Kernel, class Problem>
void launch_kernel(stream where, const char* name, const Problem& problem, std::size_t m,
                   std::size_t n, std::size_t k, std::size_t parts) {
  const product_sizes size{m, n, k, problem.size.groups, parts, Kernel::rows, Kernel::columns};
  launch(where, name, {blocks_for(size.tasks, 1), Kernel::shared_bytes}, Kernel{problem, size});
}

template <class Problem>
void launch_product(stream where, const char* name, const Problem& problem, std::size_t m,
                    std::size_t n, std::size_t k, std::size_t parts) {
  if constexpr (std::is_same_v<typename Problem::type, float>)
    with_best_shape<Problem::runs_down>(m, n, [&]<class Shape>(Shape) {
      launch_kernel<implicit_product<Problem, Shape>>(where, name, problem, m, n, k, parts);
    });
  else if (m <= 32)
    launch_kernel<tensor_product<Problem, 32>>(where, name, problem, m, n, k, parts);
  else
    launch_kernel<tensor_product<Problem, 64>>(where, name, problem, m, n, k, parts);
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
  // There are enough parts for about three blocks on each multiprocessor of a large GPU. If the sum
  // is short, there are fewer parts, so that each part has at least 256 terms.
  constexpr std::size_t blocks = 396;
  const auto m = out.channels / static_cast<std::size_t>(how.groups);
  const auto n = weights_of(in, out, how) / std::max<std::size_t>(out.channels, 1);
  std::size_t tiles = 1;
  with_best_shape<true>(m, n, [&]<class Shape>(Shape) {
    const auto groups = static_cast<std::size_t>(how.groups);
    tiles = product_sizes{m, n, 0, groups, 1, Shape::rows, Shape::columns}.tasks;
  });
  const auto most = std::max<std::size_t>(blocks / std::max<std::size_t>(tiles, 1), 1);
  return std::clamp<std::size_t>(out.count * out.pixels() / 256, 1, most);
}

void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            mixed_input x, mixed_input dy, float* space, float* dw) {
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
  launch(where, "conv2d_weight_gradient_sum",
         {blocks_for(weights, parts_total::columns), parts_total::shared_bytes},
         parts_total{{space, parts * weights}, {dw, weights}, parts});
}

} // namespace troupe::cuda
