#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// What least_squares finds.
struct least_squares_solution {
  /// (targets, features), row-major; empty where they are not unique.
  std::vector<double> weights;
  /// (targets); empty without a bias.
  std::vector<double> bias;
  /// Sum over samples and targets of (prediction - target)^2.
  double squared_error = 0;
  /// Features that make the weights ambiguous: each is constant (where there is a bias), or up to
  /// rounding a sum of multiples of features before it.
  std::vector<std::size_t> dependent;
};

/// Linear and ridge regression, solved exactly: the weights W and bias b that minimize
///
///   sum over samples of |W x + b - y|^2 + ridge |W|^2 + bias_ridge |b|^2
///
/// by the normal equations (X'X + ridge I) W = X'Y and Cholesky's decomposition, in double. Samples
/// are added in blocks, and forgotten: memory is O(features^2).
///
/// So that large means cost no digits, X'X is kept of x - c, where c is the mean of the first
/// block; with a bias, that moves nothing but the bias. Columns are scaled to unit length before
/// they are decomposed. One thread at a time.
class least_squares {
public:
  least_squares(std::size_t features, std::size_t targets, bool bias);
  ~least_squares();

  /// Adds samples.
  /// @param features (samples, features), row-major
  /// @param targets (samples, targets), row-major
  /// @throws std::invalid_argument where the sizes do not fit
  void add(std::span<const float> features, std::span<const float> targets);

  std::uint64_t samples() const noexcept;

  /// The first feature with a value that is not finite, or the number of features where a target
  /// has one; nothing of that kind: features + 1.
  std::size_t first_not_finite() const;

  /// @param ridge 0 or more; 0: without a penalty on the weights
  /// @param bias_ridge the same of the bias; 0: as scikit-learn's Ridge
  least_squares_solution solve(double ridge, double bias_ridge) const;
  least_squares_solution solve(double ridge) const { return solve(ridge, ridge); }

  /// Bytes that it needs to solve for this number of features and targets.
  static std::size_t memory_bytes(std::size_t features, std::size_t targets) noexcept;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
