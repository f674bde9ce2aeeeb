#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// The result of least_squares.
struct least_squares_solution {
  /// (targets, features), row-major. Empty if the weights are not unique.
  std::vector<double> weights;
  /// (targets). Empty without a bias.
  std::vector<double> bias;
  /// Sum over samples and targets of (prediction - target)^2.
  double squared_error = 0;
  /// The features that make the weights ambiguous. Each of them is, up to rounding, a linear
  /// combination of earlier features. If there is a bias, a constant feature is also one of them.
  /// Empty if the weights are unique.
  std::vector<std::size_t> dependent;
};

/// Linear and ridge regression, solved exactly. It finds the weights W and the bias b that minimize
///
///   sum over samples of |W x + b - y|^2 + ridge |W|^2 + bias_ridge |b|^2
///
/// The solution uses the normal equations (X'X + ridge I) W = X'Y and Cholesky's decomposition, in
/// double. Samples are added in blocks, and are not stored. The memory is O(features^2).
///
/// Features with large means would reduce the precision. Therefore, with a bias, the sums are
/// computed for x - c and y - c', where c and c' are the means of the samples in the first call of
/// add(). This changes only the bias, and solve() converts it back. Columns are scaled to unit
/// length before the decomposition. Only one thread at a time may use an object.
class least_squares {
public:
  least_squares(std::size_t features, std::size_t targets, bool bias);
  ~least_squares();

  /// Adds samples.
  /// @param features (samples, features), row-major
  /// @param targets (samples, targets), row-major
  /// @throws std::invalid_argument if the sizes do not fit
  void add(std::span<const float> features, std::span<const float> targets);

  std::uint64_t samples() const noexcept;

  /// Returns the first feature that has a value that is not finite. If only a target has such a
  /// value, returns the number of features. If all values are finite, returns features + 1.
  std::size_t first_not_finite() const;

  /// Computes the solution for all samples that have been added.
  /// @param ridge at least 0; 0 means no penalty on the weights
  /// @param bias_ridge at least 0; 0 means no penalty on the bias, as in scikit-learn's Ridge
  least_squares_solution solve(double ridge, double bias_ridge) const;
  least_squares_solution solve(double ridge) const { return solve(ridge, ridge); }

  /// Bytes of memory needed to solve for this number of features and targets.
  static std::size_t memory_bytes(std::size_t features, std::size_t targets) noexcept;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
