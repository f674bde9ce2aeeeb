#include "kernels/cuda/losses.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <cmath>
#include <limits>

namespace troupe::cuda {

namespace {

// A warp handles a row at a time. Each lane reads and writes only its own columns, so results may
// overwrite operands.

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A row: n elements from `begin`.
template <class In>
struct row {
  In x;
  std::size_t begin, n;

  TROUPE_DEVICE float at(std::size_t j) const { return x.load(begin + j); }
  TROUPE_DEVICE float maximum(const thread& t) const {
    float result = -infinity;
    for (std::size_t j = t.lane(); j < n; j += warp_threads) {
      const auto y = at(j);
      result = y > result ? y : result;
    }
    return warp_maximum(t, result);
  }
  TROUPE_DEVICE float sum_of_exponentials(const thread& t, float shift) const {
    double total = 0;
    for (std::size_t j = t.lane(); j < n; j += warp_threads)
      total += static_cast<double>(cpu::exp(at(j) - shift));
    return static_cast<float>(warp_sum(t, total));
  }
};

template <class In>
struct softmax_kernel {
  In x;            // (rows, columns)
  view<float> out; // (rows, columns)
  std::size_t rows, columns, visible;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto r = t.first_warp(); r < rows; r += t.warp_stride()) {
      const row<In> own{x, r * columns, visible > 0 ? r % visible + 1 : columns};
      const auto largest = own.maximum(t);
      const auto total = own.sum_of_exponentials(t, largest);
      for (std::size_t j = t.lane(); j < columns; j += warp_threads)
        out.store(own.begin + j, j < own.n ? cpu::exp(own.at(j) - largest) / total : 0);
    }
  }
};

template <class In>
struct cross_entropy_kernel {
  In logits;                       // (rows, classes)
  view<const std::int32_t> labels; // (rows)
  view<float> gradient;            // (rows, classes)
  view<double> results;            // (3, rows): loss, correct, counted
  std::size_t rows, classes;
  double smoothing;
  float factor;
  bool has_ignored;
  std::int32_t ignored;

  TROUPE_DEVICE void finish(const thread& t, std::size_t r, double loss, double correct,
                            double counted) const {
    if (t.lane() != 0)
      return;
    results.store(r, loss);
    results.store(rows + r, correct);
    results.store(2 * rows + r, counted);
  }
  TROUPE_DEVICE void fill(const thread& t, std::size_t r, float value) const {
    if (gradient.data != nullptr)
      for (std::size_t j = t.lane(); j < classes; j += warp_threads)
        gradient.store(r * classes + j, value);
  }

  /// True if the label's logit is the largest one, or the first one of several largest. False if a
  /// logit is NaN.
  TROUPE_DEVICE bool is_correct(const thread& t, const row<In>& own, std::size_t label,
                                float value) const {
    unsigned better = value == value ? 0 : 1;
    for (std::size_t j = t.lane(); j < classes; j += warp_threads) {
      const bool worse = j < label ? value > own.at(j) : value >= own.at(j);
      better += worse ? 0 : 1;
    }
    return warp_sum(t, better) == 0;
  }

  TROUPE_DEVICE void write_gradient(const thread& t, const row<In>& own, std::size_t label,
                                    float largest, float total) const {
    const auto spread = static_cast<float>(smoothing / static_cast<double>(classes));
    const auto sure = static_cast<float>(1 - smoothing);
    for (std::size_t j = t.lane(); j < classes; j += warp_threads) {
      float y = cpu::exp(own.at(j) - largest) / total;
      if (smoothing > 0)
        y -= spread;
      if (j == label)
        y -= sure;
      gradient.store(own.begin + j, y * factor);
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto r = t.first_warp(); r < rows; r += t.warp_stride()) {
      const auto given = labels.load(r);
      if (has_ignored && given == ignored) {
        fill(t, r, 0);
        finish(t, r, 0, 0, 0);
        continue;
      }
      // The conversion turns a negative label into a very large one.
      const auto label = static_cast<std::size_t>(static_cast<std::uint32_t>(given));
      if (label >= classes) {
        fill(t, r, nan);
        finish(t, r, static_cast<double>(nan), 0, 1);
        continue;
      }
      const row<In> own{logits, r * classes, classes};
      // The lane that owns the label's column reads its logit, before this lane may overwrite it.
      // The sum passes the logit to all lanes.
      const auto value = warp_sum(t, t.lane() == label % warp_threads ? own.at(label) : 0.0F);
      const bool correct = is_correct(t, own, label, value);
      const auto largest = own.maximum(t);
      const auto total = own.sum_of_exponentials(t, largest);
      auto wanted = static_cast<double>(value);
      if (smoothing > 0) {
        double all = 0;
        for (std::size_t j = t.lane(); j < classes; j += warp_threads)
          all += static_cast<double>(own.at(j));
        wanted =
          (1 - smoothing) * wanted + smoothing / static_cast<double>(classes) * warp_sum(t, all);
      }
      if (gradient.data != nullptr)
        write_gradient(t, own, label, largest, total);
      finish(t, r, std::log(static_cast<double>(total)) + static_cast<double>(largest) - wanted,
             correct ? 1 : 0, 1);
    }
  }
};

} // namespace

void softmax(stream where, std::size_t rows, std::size_t columns, std::size_t visible,
             mixed_input x, float* out) {
  const auto n = rows * columns;
  with_view({x, n}, [&](auto from) {
    launch(where, "softmax", {blocks_for(rows, block_warps)},
           softmax_kernel<decltype(from)>{from, {out, n}, rows, columns, visible});
  });
}

void softmax_cross_entropy(stream where, const cross_entropy_arguments& arguments,
                           scalar_result loss, scalar_result correct, scalar_result counted) {
  const auto& a = arguments;
  const auto n = a.rows * a.classes;
  with_view({a.logits, n}, [&](auto logits) {
    cross_entropy_kernel<decltype(logits)> kernel{};
    kernel.logits = logits;
    kernel.labels = {a.labels, a.rows};
    kernel.gradient = {a.gradient, n};
    kernel.results = {a.row_space, 3 * a.rows};
    kernel.rows = a.rows;
    kernel.classes = a.classes;
    kernel.smoothing = a.how.smoothing;
    kernel.factor = static_cast<float>(a.factor);
    kernel.has_ignored = a.how.ignored.has_value();
    kernel.ignored = a.how.ignored.value_or(0);
    launch(where, "softmax_cross_entropy", {blocks_for(a.rows, block_warps)}, kernel);
  });
  sum(where, a.rows, a.row_space, a.factor, a.space, loss);
  sum(where, a.rows, a.row_space + a.rows, 1, a.space, correct);
  sum(where, a.rows, a.row_space + 2 * a.rows, 1, a.space, counted);
}

} // namespace troupe::cuda
