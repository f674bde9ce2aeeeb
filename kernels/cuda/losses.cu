#include "kernels/cuda/losses.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/rows.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace troupe::cuda {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

template <class Columns, class In>
struct softmax_kernel {
  static constexpr unsigned blocks_at_once = Columns::blocks_at_once;
  In x;            // (rows, columns)
  view<float> out; // (rows, columns)
  Columns columns;
  std::size_t rows, visible;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const typename Columns::team own{t};
    for (auto r = own.first(); r < rows; r += own.stride()) {
      const auto n = static_cast<unsigned>(visible > 0 ? r % visible + 1 : columns.count);
      row_values values(own, columns, x, r * columns.count, -infinity);
      float largest = -infinity;
      values.visit(
        [&](unsigned j, float y) { largest = larger_of(largest, j < n ? y : -infinity); });
      largest = own.maximum(largest);
      const auto total = values.sum([&](unsigned j, float& y) {
        const float e = j < n ? cpu::exp_of_negative(y - largest) : 0.0F;
        if (Columns::keeps)
          y = e;
        return e;
      });
      const auto factor = static_cast<float>(1 / own.sum(total));
      values.write(out, [&](unsigned j, float y) {
        const float e = Columns::keeps ? y : j < n ? cpu::exp_of_negative(y - largest) : 0.0F;
        return j < n ? e * factor : 0.0F; // 0 even if the factor is NaN
      });
    }
  }
};

template <class Columns, class In>
struct cross_entropy_kernel {
  static constexpr unsigned blocks_at_once = Columns::blocks_at_once;
  In logits;                       // (rows, classes)
  view<const std::int32_t> labels; // (rows)
  view<float> gradient;            // (rows, classes)
  view<double> results;            // (3, rows): loss, correct, counted
  Columns columns;
  std::size_t rows;
  double smoothing;
  float factor;
  bool has_ignored;
  std::int32_t ignored;

  TROUPE_DEVICE void finish(const typename Columns::team& own, std::size_t r, double loss,
                            double correct, double counted) const {
    if (own.rank() != 0)
      return;
    results.store(r, loss);
    results.store(rows + r, correct);
    results.store(2 * rows + r, counted);
  }
  TROUPE_DEVICE void fill(const typename Columns::team& own, std::size_t r, float value) const {
    if (gradient.data != nullptr)
      columns.each_pack(own, [&](unsigned, unsigned j) {
        columns.store(gradient, r * columns.count, j, {value, value, value, value});
      });
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const typename Columns::team own{t};
    for (auto r = own.first(); r < rows; r += own.stride()) {
      const auto given = labels.load(r);
      // The conversion turns a negative label into a very large one.
      const auto label = static_cast<unsigned>(given);
      const bool leave_out = has_ignored && given == ignored;
      if (leave_out || label >= columns.count) {
        fill(own, r, leave_out ? 0.0F : nan);
        finish(own, r, leave_out ? 0 : static_cast<double>(nan), 0, leave_out ? 0 : 1);
        continue;
      }
      row_values values(own, columns, logits, r * columns.count, -infinity);
      handle(own, values, r, label);
    }
  }

  template <class Row>
  TROUPE_DEVICE void handle(const typename Columns::team& own, Row& values, std::size_t r,
                            unsigned label) const {
    float largest = -infinity;
    values.visit([&](unsigned, float x) { largest = larger_of(largest, x); });
    largest = own.maximum(largest);
    // The gradient may overwrite the logits. So the thread that owns the label's column reads the
    // logit of the label here, before it writes the gradient. The sum passes this logit to all
    // threads.
    const auto place = r * columns.count + label;
    const bool owns = columns.owner_of(label) == own.rank();
    const auto value = own.sum(owns ? logits.load(place) : 0.0F);
    auto wanted = static_cast<double>(value);
    if (smoothing > 0) {
      const auto all = values.sum_present([](float x) { return x; });
      wanted =
        (1 - smoothing) * wanted + smoothing / static_cast<double>(columns.count) * own.sum(all);
    }
    bool correct = value == largest;
    if (correct) {
      // The sample is correct only if no logit before the label's logit is equally large, and no
      // logit is NaN.
      unsigned better = 0;
      values.visit(
        [&](unsigned j, float x) { better += x != x || (j < label && x == largest) ? 1 : 0; });
      correct = own.sum(better) == 0;
    }
    auto total = values.sum([&](unsigned, float& x) {
      const float e = cpu::exp_of_negative(x - largest);
      if (Columns::keeps)
        x = e;
      return e;
    });
    total = static_cast<double>(static_cast<float>(own.sum(total)));
    if (gradient.data != nullptr) {
      const auto scale = static_cast<float>(static_cast<double>(factor) / total);
      const auto spread =
        static_cast<float>(smoothing / static_cast<double>(columns.count)) * factor;
      const auto share = [&](float x) {
        return (Columns::keeps ? x : cpu::exp_of_negative(x - largest)) * scale - spread;
      };
      values.write(gradient, [&](unsigned, float x) { return share(x); });
      if (owns)
        gradient.store(place,
                       cpu::exp_of_negative(value - largest) * scale - spread
                         - static_cast<float>(1 - smoothing) * factor);
    }
    finish(own, r, std::log(total) + static_cast<double>(largest) - wanted, correct ? 1 : 0, 1);
  }
};

} // namespace

void softmax(stream where, std::size_t rows, std::size_t columns, std::size_t visible,
             mixed_input x, float* out) {
  const auto n = rows * columns;
  with_view({x, n}, [&](auto from) {
    with_row_columns(columns, {address_of(from), {out}}, [&](auto how) {
      launch_rows(
        where, "softmax", rows, how,
        softmax_kernel<decltype(how), decltype(from)>{from, {out, n}, how, rows, visible});
    });
  });
}

void softmax_cross_entropy(stream where, const cross_entropy_arguments& arguments,
                           scalar_result loss, scalar_result correct, scalar_result counted) {
  const auto& a = arguments;
  const auto n = a.rows * a.classes;
  with_view({a.logits, n}, [&](auto logits) {
    with_row_columns(a.classes, {address_of(logits), {a.gradient}}, [&](auto how) {
      cross_entropy_kernel<decltype(how), decltype(logits)> kernel{};
      kernel.logits = logits;
      kernel.labels = {a.labels, a.rows};
      kernel.gradient = {a.gradient, n};
      kernel.results = {a.row_space, 3 * a.rows};
      kernel.columns = how;
      kernel.rows = a.rows;
      kernel.smoothing = a.how.smoothing;
      kernel.factor = static_cast<float>(a.factor);
      kernel.has_ignored = a.how.ignored.has_value();
      kernel.ignored = a.how.ignored.value_or(0);
      launch_rows(where, "softmax_cross_entropy", a.rows, how, kernel);
    });
  });
  const sum_of_rows all[] = {{a.factor, loss}, {1, correct}, {1, counted}};
  sum_rows(where, a.rows, a.row_space, all, a.space);
}

} // namespace troupe::cuda
