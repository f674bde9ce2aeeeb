#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/random.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe::test {

// Functions for numeric tests.

/// The seed of all random test data: TROUPE_SEED, or a fixed number if it is not set. Prints the
/// seed at the first call.
std::uint64_t seed();

/// Checks that |actual - expected| <= atol + rtol |expected| for all elements, and that NaN and
/// infinity are at the same positions. Prints the worst element.
void check_close(std::span<const double> actual, std::span<const double> expected, double rtol,
                 double atol, const std::string& what);
void check_close(std::span<const float> actual, std::span<const double> expected, double rtol,
                 double atol, const std::string& what);

/// True if all bits are the same, including the bits of NaNs.
bool same_bits(std::span<const float> a, std::span<const float> b);

/// Normally distributed random numbers that are not close to 0, and that float represents exactly.
std::vector<double> random_values(std::size_t n, std::string_view name, std::uint64_t salt = 0);

/// d f / d x[i] by central differences of fourth order.
std::vector<double> central_differences(const std::function<double()>& f, std::span<double> x);

/// n elements between two guard bands: memory whose contents must not change. `offset` shifts the
/// elements relative to a 64-byte boundary.
template <class T>
class guarded {
public:
  explicit guarded(std::size_t n, std::size_t offset = 0)
    : memory_(n + 2 * band + offset, mark), begin_(band + offset), size_(n) {}

  std::span<T> get() { return {memory_.data() + begin_, size_}; }
  T* data() { return memory_.data() + begin_; }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + size_) && memory_[i] != mark)
        return false;
    return true;
  }

private:
  static constexpr std::size_t band = 64;
  static constexpr T mark = T(-12345);
  std::vector<T> memory_;
  std::size_t begin_;
  std::size_t size_;
};

/// Values for the parameters of a graph (random, one vector per layout entry) and for its feeds
/// (one per placeholder), in double. Labels are small integers.
struct leaves {
  std::size_t rows = 0;
  std::vector<std::vector<double>> weights;
  std::vector<std::vector<double>> feeds;
};
/// Random leaves. Another `salt` gives other values.
leaves random_leaves(const graph& g, std::size_t rows, std::int64_t classes = 3,
                     std::uint64_t salt = 0);

/// How close an input of relu (or of another function with a kink at zero) comes to zero: the
/// smallest distance, over all nodes up to `id`. Near a kink, numerical gradients are wrong.
double distance_to_kinks(const graph& g, std::uint32_t id, const leaves& values);

/// x rounded to the nearest number of a type, with arithmetic only. For float32, x itself.
double rounded(dtype type, double x);

/// The value of node `id`, computed with plain loops in double, without plan and executor.
std::vector<double> reference_value(const graph& g, std::uint32_t id, const leaves& values);

/// The results of an executor, converted to double.
struct executed {
  double loss = 0;
  std::size_t correct = 0;
  std::size_t counted = 0;
  std::vector<std::vector<double>> fetches;
  std::vector<double> gradient;
};

/// Plans a graph and runs it once, with T = float or double. Expressions that are not set are
/// ignored.
template <class T>
executed execute(const graph& g, const leaves& values, expression loss,
                 const std::vector<expression>& fetches, bool gradients, expression correct = {});

/// Compares y with the reference for several numbers of rows: in double to 1e-12, and in float to
/// `float_tolerance`. Both are relative to the largest element.
void check_forward(const graph& g, expression y, double float_tolerance = 1e-5);

/// Compares the gradient of the scalar `loss` with respect to all variables with central
/// differences in double (relative error 1e-6). Also compares the gradient in float with the
/// gradient in double, to `float_tolerance` of the largest element.
void check_gradient(const graph& g, expression loss, double float_tolerance = 1e-5);

/// Turns y into a scalar with a different weight for each element: sum(y * y + y).
expression to_scalar(expression y);

/// Calls check_forward for y. Calls check_gradient for to_scalar(y), with ten times the tolerance
/// in float.
void check_both(const graph& g, expression y, double float_tolerance = 1e-5);

} // namespace troupe::test
