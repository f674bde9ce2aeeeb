#include "kernels/cpu/math.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_operands.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/narrow_attention.hpp"
#include "kernels/cuda/narrow_attention_work.hpp"
#include "kernels/cuda/tensor_core.hpp"
#include "kernels/narrow_float.hpp"

#include <cmath>
#include <cstddef>

namespace troupe::cuda {

namespace {

/// The sum of dy * y for each query of each head. A warp handles one query at a time.
template <class T>
struct row_products_kernel {
  attention_operands<view<const T>> x;
  view<const T> dy;
  mixed_view y;
  view<float> products; // (batch, heads, queries)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first_warp(); i < products.size; i += t.warp_stride()) {
      const auto head = i / x.size.queries;
      const auto row = static_cast<unsigned>(i % x.size.queries);
      const auto dy_of = x.y_of(dy, head);
      const auto y_of = x.y_of(y, head);
      float sum = 0;
      for (unsigned c = t.lane(); c < dy_of.width; c += warp_threads)
        sum = std::fma(widened(dy_of.at(row, c)), y_of.at(row, c), sum);
      sum = warp_sum(t, sum);
      if (t.lane() == 0)
        products.store(i, sum);
    }
  }
};

template <class T, unsigned columns>
struct narrow_query_gradient_kernel {
  static constexpr unsigned blocks_at_once = columns <= 2 ? 2 : 1;
  using work_of_block = narrow_work<T, columns>;
  attention_operands<view<const T>> x;
  view<const T> dy;
  view<const float> statistics; // (batch, heads, queries)
  view<const float> products;   // (batch, heads, queries): sum of dy y
  narrow_target<T> dq;
  std::size_t blocks_per_head;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const work_of_block work(t);
    const auto factor = static_cast<float>(x.size.factor);
    each_narrow_task(t, x.size.batch * x.size.heads, blocks_per_head, true,
                     [&](unsigned head, unsigned row) {
                       const auto own_row = work.own_row(row);
                       float shift[2];
                       float product[2];
                       TROUPE_UNROLL
                       for (unsigned h = 0; h < 2; ++h) {
                         const auto query = own_row + sum_tile::row(t.lane(), 2 * h);
                         const auto place = head * x.size.queries + query;
                         shift[h] = query < x.queries() ? statistics.load(place) : 0;
                         product[h] = query < x.queries() ? products.load(place) : 0;
                       }
                       left_tile<T> queries[columns];
                       left_tile<T> gradients[columns];
                       work.load_own(x.q_of(head), row, queries);
                       work.load_own(x.y_of(dy, head), row, gradients);
                       sum_tile sums[columns] = {};
                       const auto own_end =
                         own_row < x.queries() ? x.template end_of_keys<tensor_edge>(own_row) : 0;
                       const auto keys = x.k_of(head);
                       const auto values = x.v_of(head);
                       const auto end = x.template end_of_keys<narrow_block_rows>(row);
                       work.each_step(keys, values, 0, end, [&](unsigned column, const auto& step) {
                         if (column >= own_end) // no query of this warp sees these keys
                           return;
                         TROUPE_ONE_BY_ONE
                         for (unsigned n = 0; n < narrow_step_tiles; ++n) {
                           const auto scores = work.multiply(queries, step.first, n);
                           auto slopes = work.multiply(gradients, step.second, n);
                           TROUPE_UNROLL
                           for (unsigned i = 0; i < sum_tile::size; ++i) {
                             const auto h = sum_tile::half(i);
                             const float share = narrow_exp(scores.x[i] * factor - shift[h]);
                             slopes.x[i] = slope_of(share, slopes.x[i], product[h], factor);
                           }
                           const auto first = column + n * tensor_edge;
                           if (!x.template all_see<tensor_edge, tensor_edge>(own_row, first))
                             TROUPE_UNROLL
                           for (unsigned i = 0; i < sum_tile::size; ++i)
                             if (!x.sees(own_row + sum_tile::row(t.lane(), i),
                                         first + sum_tile::column(t.lane(), i)))
                               slopes.x[i] = 0;
                           work.add(slopes, step.first, n, sums);
                         }
                       });
                       work.write({dq, x.size.q, head, x.size, x.size.queries}, row, sums);
                     });
  }
};

/// Computes the gradients of k and v. In this kernel, a tile has a row for each key, and a column
/// for each query. For wide heads, a thread has too few registers for the sums of both gradients,
/// so each gradient needs its own launch.
template <class T, unsigned columns, bool for_keys, bool for_values>
struct narrow_key_gradient_kernel {
  static constexpr unsigned blocks_at_once = 1;
  using work_of_block = narrow_work<T, columns>;
  attention_operands<view<const T>> x;
  view<const T> dy;
  view<const float> statistics; // (batch, heads, queries)
  view<const float> products;   // (batch, heads, queries)
  narrow_target<T> dk, dv;
  std::size_t blocks_per_head;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const work_of_block work(t);
    const auto factor = static_cast<float>(x.size.factor);
    each_narrow_task(
      t, x.size.batch * x.size.heads, blocks_per_head, false, [&](unsigned head, unsigned row) {
        const auto own_row = work.own_row(row);
        left_tile<T> keys[columns];
        left_tile<T> values[columns];
        work.load_own(x.k_of(head), row, keys);
        if constexpr (for_keys)
          work.load_own(x.v_of(head), row, values);
        sum_tile k_sums[columns] = {};
        sum_tile v_sums[columns] = {};
        const auto queries = x.q_of(head);
        const auto gradients = x.y_of(dy, head);
        const auto compute = [&](unsigned column, const auto& step) {
          // No query of this step sees a key of this warp.
          if (own_row >= x.keys() || (x.size.causal && column + narrow_step_rows <= own_row))
            return;
          TROUPE_ONE_BY_ONE
          for (unsigned n = 0; n < narrow_step_tiles; ++n) {
            const auto first = column + n * tensor_edge;
            const auto query = [&](unsigned i) { return first + sum_tile::column(t.lane(), i); };
            const bool all = x.template all_see<tensor_edge, tensor_edge>(first, own_row);
            /// Sets the elements of queries that do not see the key to 0.
            const auto mask = [&](sum_tile& tile) {
              if (!all)
                TROUPE_UNROLL
              for (unsigned i = 0; i < sum_tile::size; ++i)
                if (!x.sees(query(i), own_row + sum_tile::row(t.lane(), i)))
                  tile.x[i] = 0;
            };
            const auto of_query = [&](unsigned which, unsigned i) {
              return step.number(which, query(i) - column);
            };
            auto shares = work.multiply(keys, step.first, n);
            TROUPE_UNROLL
            for (unsigned i = 0; i < sum_tile::size; ++i)
              shares.x[i] = narrow_exp(shares.x[i] * factor - of_query(0, i));
            mask(shares);
            if constexpr (for_values)
              work.add(shares, step.second, n, v_sums);
            if constexpr (for_keys) {
              auto slopes = work.multiply(values, step.second, n);
              TROUPE_UNROLL
              for (unsigned i = 0; i < sum_tile::size; ++i)
                slopes.x[i] = slope_of(shares.x[i], slopes.x[i], of_query(1, i), factor);
              mask(slopes);
              work.add(slopes, step.first, n, k_sums);
            }
          }
        };
        work.each_step(queries, gradients, x.size.causal ? row : 0, x.queries(), compute,
                       {statistics, products, head * x.size.queries});
        if (for_keys && dk.data != nullptr)
          work.write({dk, x.size.k, head, x.size, x.size.keys}, row, k_sums);
        if (for_values && dv.data != nullptr)
          work.write({dv, x.size.v, head, x.size, x.size.keys}, row, v_sums);
      });
  }
};

} // namespace

void narrow_attention_gradient(stream where, const attention_layout& size,
                               const attention_inputs& x, mixed_input dy, mixed_input y,
                               const float* statistics, float* products,
                               const attention_gradients& out) {
  const auto rows = size.batch * size.heads * size.queries;
  const auto results = elements_of(size, size.y);
  with_narrow_kernel(x.q.type, size.width, [&]<class T>(T, auto columns) {
    using query_kernel = narrow_query_gradient_kernel<T, decltype(columns)::value>;
    constexpr auto shared_bytes = query_kernel::work_of_block::shared_bytes;
    const auto all = narrow_operands_of<T>(size, x);
    const view<const T> gradient{static_cast<const T*>(dy.data), results};
    const auto by_query = narrow_blocks_of(size.queries);
    launch(where, "row_products", {blocks_for(rows, block_warps)},
           row_products_kernel<T>{all, gradient, {y.data, results, y.type}, {products, rows}});
    if (out.q.data != nullptr)
      launch(where, "query_gradient",
             {blocks_for(size.batch * size.heads * by_query, 1), shared_bytes},
             query_kernel{all,
                          gradient,
                          {statistics, rows},
                          {products, rows},
                          narrow_target_of<T>(out.q, elements_of(size, size.q)),
                          by_query});
    if (out.k.data == nullptr && out.v.data == nullptr)
      return;
    const auto by_key = narrow_blocks_of(size.keys);
    const auto launch_keys = [&]<bool for_keys, bool for_values>() {
      launch(where, "key_gradient", {blocks_for(size.batch * size.heads * by_key, 1), shared_bytes},
             narrow_key_gradient_kernel<T, decltype(columns)::value, for_keys, for_values>{
               all,
               gradient,
               {statistics, rows},
               {products, rows},
               narrow_target_of<T>(out.k, elements_of(size, size.k)),
               narrow_target_of<T>(out.v, elements_of(size, size.v)),
               by_key});
    };
    if constexpr (decltype(columns)::value <= 4) {
      launch_keys.template operator()<true, true>();
    } else {
      if (out.k.data != nullptr)
        launch_keys.template operator()<true, false>();
      if (out.v.data != nullptr)
        launch_keys.template operator()<false, true>();
    }
  });
}

} // namespace troupe::cuda
