#include "kernels/cuda/narrow_attention.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/attention_operands.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/narrow_attention_work.hpp"
#include "kernels/cuda/tensor_core.hpp"

#include <cstddef>

namespace troupe::cuda {

namespace {

template <class T, unsigned columns>
struct narrow_attention_kernel {
  static constexpr unsigned blocks_at_once = columns <= 4 ? 2 : 1;
  /// The number of tiles of keys whose products with the queries are in registers at the same time.
  static constexpr unsigned tiles_at_once = 2;
  static_assert(narrow_step_tiles % tiles_at_once == 0);
  using work_of_block = narrow_work<T, columns>;
  attention_operands<view<const T>> x;
  narrow_target<T> y;
  view<float> statistics; // (batch, heads, queries)
  std::size_t blocks_per_head;

  /// Replaces each product of these tiles by exp(product - m), where m is the largest product of
  /// the row so far, and adds these exponentials to `totals` (only over this lane's columns).
  /// `sums` are the sums of exponentials times values over earlier tiles. If these tiles increase
  /// m, the earlier `totals` and `sums` are multiplied by exp(old m - new m), so that they also
  /// refer to the new m.
  TROUPE_DEVICE void to_exponentials(const work_of_block& work, unsigned row, unsigned column,
                                     sum_tile (&products)[tiles_at_once], float (&largest)[2],
                                     float (&totals)[2], sum_tile (&sums)[columns]) const {
    const auto factor = static_cast<float>(x.size.factor);
    TROUPE_UNROLL
    for (auto& tile : products)
      TROUPE_UNROLL
    for (auto& p : tile.x)
      p *= factor;
    if (!x.template all_see<tensor_edge, tiles_at_once * tensor_edge>(row, column))
      TROUPE_UNROLL
    for (unsigned n = 0; n < tiles_at_once; ++n)
      TROUPE_UNROLL
    for (unsigned i = 0; i < sum_tile::size; ++i)
      if (!x.sees(row + sum_tile::row(work.t.lane(), i),
                  column + n * tensor_edge + sum_tile::column(work.t.lane(), i)))
        products[n].x[i] = -attention_infinity;
    float found[2] = {largest[0], largest[1]};
    TROUPE_UNROLL
    for (const auto& tile : products)
      TROUPE_UNROLL
    for (unsigned i = 0; i < sum_tile::size; ++i)
      found[sum_tile::half(i)] =
        tile.x[i] > found[sum_tile::half(i)] ? tile.x[i] : found[sum_tile::half(i)];
    float shift[2];
    float shrink[2];
    TROUPE_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      found[r] = work.row_maximum(found[r]);
      shift[r] = found[r] == -attention_infinity ? 0 : found[r];
      shrink[r] = cpu::exp(largest[r] - shift[r]);
      largest[r] = found[r];
      totals[r] *= shrink[r];
    }
    TROUPE_UNROLL
    for (unsigned n = 0; n < tiles_at_once; ++n)
      TROUPE_UNROLL
    for (unsigned i = 0; i < sum_tile::size; ++i) {
      auto& p = products[n].x[i];
      p = narrow_exp(p - shift[sum_tile::half(i)]);
      totals[sum_tile::half(i)] += p;
    }
    TROUPE_UNROLL
    for (auto& sum : sums)
      TROUPE_UNROLL
    for (unsigned i = 0; i < sum_tile::size; ++i)
      sum.x[i] *= shrink[sum_tile::half(i)];
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const work_of_block work(t);
    each_narrow_task(
      t, x.size.batch * x.size.heads, blocks_per_head, true, [&](unsigned head, unsigned row) {
        const auto own_row = work.own_row(row);
        left_tile<T> queries[columns];
        work.load_own(x.q_of(head), row, queries);
        sum_tile sums[columns] = {};
        float largest[2] = {-attention_infinity, -attention_infinity};
        float totals[2] = {};
        const auto own_end =
          own_row < x.queries() ? x.template end_of_keys<tensor_edge>(own_row) : 0;
        const auto keys = x.k_of(head);
        const auto values = x.v_of(head);
        const auto end = x.template end_of_keys<narrow_block_rows>(row);
        work.each_step(keys, values, 0, end, [&](unsigned column, const auto& step) {
          if (column >= own_end) // no query of this warp sees these keys
            return;
          TROUPE_ONE_BY_ONE
          for (unsigned first = 0; first < narrow_step_tiles; first += tiles_at_once) {
            sum_tile products[tiles_at_once];
            TROUPE_UNROLL
            for (unsigned n = 0; n < tiles_at_once; ++n)
              products[n] = work.multiply(queries, step.first, first + n);
            to_exponentials(work, own_row, column + first * tensor_edge, products, largest, totals,
                            sums);
            TROUPE_UNROLL
            for (unsigned n = 0; n < tiles_at_once; ++n)
              work.add(products[n], step.second, first + n, sums);
          }
        });
        TROUPE_UNROLL
        for (unsigned r = 0; r < 2; ++r)
          totals[r] = work.row_sum(totals[r]);
        TROUPE_UNROLL
        for (auto& sum : sums)
          TROUPE_UNROLL
        for (unsigned i = 0; i < sum_tile::size; ++i)
          sum.x[i] /= totals[sum_tile::half(i)];
        if (statistics.data != nullptr && t.lane() % 4 == 0)
          TROUPE_UNROLL
        for (unsigned r = 0; r < 2; ++r)
          if (const auto query = own_row + sum_tile::row(t.lane(), 2 * r); query < x.queries())
            statistics.store(head * x.size.queries + query, largest[r] + cpu::log(totals[r]));
        if (y.data != nullptr)
          work.write({y, x.size.y, head, x.size, x.size.queries}, row, sums);
      });
  }
};

} // namespace

void narrow_attention(stream where, const attention_layout& size, const attention_inputs& x,
                      mixed_output y, float* statistics) {
  const auto per_head = narrow_blocks_of(size.queries);
  with_narrow_kernel(x.q.type, size.width, [&]<class T>(T, auto columns) {
    using kernel = narrow_attention_kernel<T, decltype(columns)::value>;
    launch(where, "attention",
           {blocks_for(size.batch * size.heads * per_head, 1), kernel::work_of_block::shared_bytes},
           kernel{narrow_operands_of<T>(size, x),
                  narrow_target_of<T>(y, elements_of(size, size.y)),
                  {statistics, size.batch * size.heads * size.queries},
                  per_head});
  });
}

} // namespace troupe::cuda
