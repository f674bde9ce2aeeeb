#include "kernels/cuda/sparse.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/kernel.hpp"

#include <limits>

namespace troupe::cuda {

namespace {

// A thread computes one element of the result at a time. It adds up the entries in their order, so
// the result has the same bits as on the CPU.

struct sparse_kernel {
  view<const std::int32_t> starts;  // (rows + 1)
  view<const std::int32_t> columns; // (capacity)
  view<const float> values;         // (capacity)
  view<const float> weight;         // (features, units)
  view<float> out;                  // (rows, units)
  std::size_t features;
  divider units;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto [r, unit] = units(i);
      const auto end = starts.load(r + 1);
      float total = 0;
      for (auto e = starts.load(r); e < end; ++e) {
        const auto k = static_cast<std::size_t>(e);
        // The conversion turns a negative column into a very large one.
        const auto column = static_cast<std::size_t>(static_cast<std::uint32_t>(columns.load(k)));
        total += column < features ? values.load(k) * weight.load(column * units.divisor() + unit)
                                   : std::numeric_limits<float>::quiet_NaN();
      }
      out.store(i, total);
    }
  }
};

struct sparse_gradient_kernel {
  view<const std::int32_t> count;   // (1)
  view<const std::int32_t> columns; // (capacity)
  view<const std::int32_t> starts;  // (capacity + 1)
  view<const std::int32_t> rows;    // (capacity)
  view<const float> values;         // (capacity)
  view<const float> g;              // (rows, units)
  view<float> out;                  // (features, units)
  divider units;
  /// If a column has enough entries, a thread loads the factors of this many entries before it adds
  /// the first product. So it waits for memory only twice for all of them: for their rows, and for
  /// their factors. The products are added in the order of the entries.
  static constexpr unsigned loads = 8;

  /// The element of g by which entry e is multiplied.
  TROUPE_DEVICE float factor(std::size_t e, std::size_t unit) const {
    return g.load(static_cast<std::size_t>(rows.load(e)) * units.divisor() + unit);
  }
  /// The sum over the entries [e, end) of a column.
  TROUPE_DEVICE float sum(std::size_t e, std::size_t end, std::size_t unit) const {
    float total = 0;
    for (; e + loads <= end; e += loads) {
      float x[loads];
      TROUPE_UNROLL
      for (unsigned k = 0; k < loads; ++k)
        x[k] = factor(e + k, unit);
      TROUPE_UNROLL
      for (unsigned k = 0; k < loads; ++k)
        total += values.load(e + k) * x[k];
    }
    for (; e < end; ++e)
      total += values.load(e) * factor(e, unit);
    return total;
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto width = units.divisor();
    const auto n = static_cast<std::size_t>(count.load(0)) * width;
    for (auto i = t.first(); i < n; i += t.stride()) {
      const auto [group, unit] = units(i);
      const auto first = static_cast<std::size_t>(starts.load(group));
      const auto end = static_cast<std::size_t>(starts.load(group + 1));
      out.store(static_cast<std::size_t>(columns.load(group)) * width + unit,
                sum(first, end, unit));
    }
  }
};

} // namespace

void sparse_matmul(stream where, std::size_t rows, std::size_t features, std::size_t units,
                   const sparse_entries& x, const float* weight, float* out) {
  launch(where, "sparse_matmul", {blocks_for(rows * units)},
         sparse_kernel{{x.starts, rows + 1},
                       {x.columns, x.capacity},
                       {x.values, x.capacity},
                       {weight, features * units},
                       {out, rows * units},
                       features,
                       {units, rows * units}});
}

void sparse_matmul_gradient(stream where, std::size_t rows, std::size_t features, std::size_t units,
                            const entries_by_column& x, const float* g, float* out,
                            bool rows_only) {
  if (!rows_only)
    fill_zero(where, features * units, out);
  launch(where, "sparse_matmul_gradient", {blocks_for(std::min(x.capacity, features) * units)},
         sparse_gradient_kernel{{x.count, 1},
                                {x.columns, x.capacity},
                                {x.starts, x.capacity + 1},
                                {x.rows, x.capacity},
                                {x.values, x.capacity},
                                {g, rows * units},
                                {out, features * units},
                                {units, x.capacity * units}});
}

} // namespace troupe::cuda
