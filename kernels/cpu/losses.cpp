#include "kernels/cpu/losses.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/softmax_loops.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <limits>

namespace troupe::cpu {

namespace {

/// The sum of exp(x - shift). The exponentials are not stored.
template <class T>
T sum_of_exponentials(std::size_t n, const T* x, T shift) {
  constexpr std::size_t chunk = 64;
  T terms[chunk];
  T total = 0;
  for (std::size_t i = 0; i < n; i += chunk) {
    const auto count = std::min(chunk, n - i);
    for (std::size_t j = 0; j < count; ++j)
      terms[j] = cpu::exp(x[i + j] - shift);
    total += static_cast<T>(sum_of(count, terms));
  }
  return total;
}

/// True if the logit of `label` is the largest logit. If several logits are the largest, it must be
/// the first of them. False if a logit is NaN.
template <class T>
bool is_correct(std::size_t n, const T* logits, std::size_t label) {
  const T value = logits[label];
  bool result = value == value;
  for (std::size_t i = 0; i < label; ++i)
    result &= value > logits[i];
  for (std::size_t i = label; i < n; ++i)
    result &= value >= logits[i];
  return result;
}

} // namespace

template <class T>
void softmax(std::size_t rows, std::size_t columns, const T* x, T* out) {
  for (std::size_t r = 0; r < rows; ++r, x += columns, out += columns) {
    const T total = exponentials(columns, x, maximum(columns, x), out);
    for (std::size_t j = 0; j < columns; ++j)
      out[j] /= total;
  }
}

template <class T>
classification softmax_cross_entropy(std::size_t rows, std::size_t classes, const T* logits,
                                     const std::int32_t* labels, const cross_entropy& how,
                                     double factor, T* gradient, bool need_loss) {
  classification result;
  const auto spread = static_cast<T>(how.smoothing / static_cast<double>(classes));
  const auto sure = static_cast<T>(1 - how.smoothing);
  for (std::size_t r = 0; r < rows; ++r, logits += classes) {
    if (how.ignored && labels[r] == *how.ignored) {
      if (gradient != nullptr)
        std::fill_n(gradient + r * classes, classes, T(0));
      continue;
    }
    ++result.counted;
    // A negative label becomes a very large number here, so one comparison finds all invalid
    // labels.
    const auto label = static_cast<std::size_t>(static_cast<std::uint32_t>(labels[r]));
    if (label >= classes) {
      constexpr auto nan = std::numeric_limits<T>::quiet_NaN();
      result.loss = nan;
      if (gradient != nullptr)
        std::fill_n(gradient + r * classes, classes, nan);
      continue;
    }
    result.correct += is_correct(classes, logits, label);
    if (gradient == nullptr && !need_loss)
      continue;
    const T largest = maximum(classes, logits);
    double wanted = static_cast<double>(logits[label]);
    if (how.smoothing > 0)
      wanted = (1 - how.smoothing) * wanted
        + how.smoothing / static_cast<double>(classes) * sum(classes, logits);
    T total = 0;
    if (gradient == nullptr) {
      total = sum_of_exponentials(classes, logits, largest);
    } else {
      T* row = gradient + r * classes;
      total = exponentials(classes, logits, largest, row);
      for (std::size_t j = 0; j < classes; ++j)
        row[j] /= total;
      if (how.smoothing > 0)
        for (std::size_t j = 0; j < classes; ++j)
          row[j] -= spread;
      row[label] -= sure;
      if (factor != 1)
        for (std::size_t j = 0; j < classes; ++j)
          row[j] *= static_cast<T>(factor);
    }
    result.loss += std::log(static_cast<double>(total)) + static_cast<double>(largest) - wanted;
  }
  return result;
}

template <class T>
std::size_t binary_correct(std::size_t n, const T* logits, const std::int32_t* labels) {
  std::size_t correct = 0;
  for (std::size_t i = 0; i < n; ++i)
    correct +=
      (labels[i] == 1 && logits[i] > T(0)) || (labels[i] == 0 && logits[i] <= T(0)) ? 1 : 0;
  return correct;
}

template <class T>
double squared_error(std::size_t n, const T* a, const T* b) {
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    total += difference * difference;
  }
  return total;
}

// NOLINTBEGIN(bugprone-macro-parentheses): types in declarations must not be in parentheses
#define TROUPE_INSTANTIATE(T)                                                                      \
  template void softmax(std::size_t, std::size_t, const T*, T*);                                   \
  template classification softmax_cross_entropy(std::size_t, std::size_t, const T*,                \
                                                const std::int32_t*, const cross_entropy&, double, \
                                                T*, bool);                                         \
  template std::size_t binary_correct(std::size_t, const T*, const std::int32_t*);                 \
  template double squared_error(std::size_t, const T*, const T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
