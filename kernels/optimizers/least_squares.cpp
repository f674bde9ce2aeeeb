#include "kernels/optimizers/least_squares.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace troupe {

namespace {

using matrix = Eigen::MatrixXd;
using row_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using samples_map = Eigen::Map<const row_matrix>;
using index = Eigen::Index;

/// Number of samples that are converted to double at a time.
constexpr index rows_at_once = 512;

/// Smallest accepted pivot. All columns have length 1. The pivot of a column is the squared length
/// that remains when its projection on the earlier columns is subtracted. If the pivot is smaller
/// than this constant, only rounding errors remain, and the column is a linear combination of
/// earlier columns.
constexpr double least_pivot = 1e-12;

/// Returns the columns whose pivot is too small. These columns are left out of the decomposition,
/// so later columns do not depend on them.
std::vector<std::size_t> dependent_columns(matrix a) {
  std::vector<std::size_t> result;
  const index n = a.rows();
  for (index j = 0; j < n; ++j) {
    if (!(a(j, j) > least_pivot)) {
      result.push_back(static_cast<std::size_t>(j));
      a.col(j).tail(n - j).setZero();
      continue;
    }
    a.col(j).tail(n - j) /= std::sqrt(a(j, j));
    for (index k = j + 1; k < n; ++k)
      a.col(k).tail(n - k) -= a(k, j) * a.col(j).tail(n - k);
  }
  return result;
}

} // namespace

struct least_squares::state {
  index features;
  index targets;
  bool bias;
  index samples = 0;
  /// The means of the features, and then of the targets, over the samples in the first call of
  /// add(). They are subtracted from each sample. 0 without a bias.
  Eigen::VectorXd centre;
  /// The sums over samples of z z', where z = (features, targets, 1) of a sample after the
  /// subtraction of `centre`. Only the lower half of the matrix is used.
  matrix moments;

  index width() const { return features + targets + 1; }
};

least_squares::least_squares(std::size_t features, std::size_t targets, bool bias)
  : state_(std::make_unique<state>()) {
  auto& s = *state_;
  s.features = static_cast<index>(features);
  s.targets = static_cast<index>(targets);
  s.bias = bias;
  s.centre = Eigen::VectorXd::Zero(s.features + s.targets);
  s.moments = matrix::Zero(s.width(), s.width());
}

least_squares::~least_squares() = default;

std::uint64_t least_squares::samples() const noexcept {
  return static_cast<std::uint64_t>(state_->samples);
}

std::size_t least_squares::memory_bytes(std::size_t features, std::size_t targets) noexcept {
  const auto width = features + targets + 1;
  // Memory for the moments, the matrix to decompose, its factor, and a block of samples.
  return (3 * width * width + static_cast<std::size_t>(rows_at_once) * width) * sizeof(double);
}

void least_squares::add(std::span<const float> features, std::span<const float> targets) {
  auto& s = *state_;
  const auto count = s.targets > 0 ? static_cast<index>(targets.size()) / s.targets : 0;
  if (static_cast<index>(targets.size()) != count * s.targets
      || static_cast<index>(features.size()) != count * s.features)
    throw std::invalid_argument(
      "least_squares: features and targets have different numbers of samples");
  const samples_map x(features.data(), count, s.features);
  const samples_map y(targets.data(), count, s.targets);
  if (s.samples == 0 && count > 0 && s.bias) {
    s.centre.head(s.features) = x.cast<double>().colwise().mean();
    s.centre.tail(s.targets) = y.cast<double>().colwise().mean();
  }
  matrix z(rows_at_once, s.width());
  for (index first = 0; first < count; first += rows_at_once) {
    const auto rows = std::min(rows_at_once, count - first);
    z.leftCols(s.features).topRows(rows) = x.middleRows(first, rows).cast<double>();
    z.middleCols(s.features, s.targets).topRows(rows) = y.middleRows(first, rows).cast<double>();
    z.topRows(rows).leftCols(s.features + s.targets).rowwise() -= s.centre.transpose();
    z.col(s.width() - 1).setOnes();
    s.moments.selfadjointView<Eigen::Lower>().rankUpdate(z.topRows(rows).transpose());
  }
  s.samples += count;
}

std::size_t least_squares::first_not_finite() const {
  const auto& s = *state_;
  for (index j = 0; j < s.features; ++j)
    if (!std::isfinite(s.moments(j, j)))
      return static_cast<std::size_t>(j);
  const bool finite = s.moments.diagonal().allFinite();
  return static_cast<std::size_t>(finite ? s.features + 1 : s.features);
}

least_squares_solution least_squares::solve(double ridge, double bias_ridge) const {
  const auto& s = *state_;
  const index f = s.features;
  // The unknowns are the bias and then the weights. The bias comes first, so a constant feature is
  // reported as dependent on the bias.
  const index lead = s.bias ? 1 : 0;
  const index n = f + lead;
  const index last = s.width() - 1;
  matrix a(n, n);
  matrix right(n, s.targets);
  a.bottomRightCorner(f, f) = s.moments.topLeftCorner(f, f);
  right.bottomRows(f) = s.moments.block(f, 0, s.targets, f).transpose();
  a.diagonal().tail(f).array() += ridge;
  if (s.bias) {
    a.col(0).tail(f) = s.moments.row(last).head(f);
    a(0, 0) = s.moments(last, last);
    right.row(0) = s.moments.row(last).segment(f, s.targets);
    // The samples were centred. So the bias of the original problem is b = b' + centre of y - W
    // centre of x, where b' is the bias of the centred problem. The penalty applies to b.
    const Eigen::VectorXd shift = s.centre.head(f);
    const Eigen::RowVectorXd centre = s.centre.tail(s.targets).transpose();
    a(0, 0) += bias_ridge;
    a.col(0).tail(f) -= bias_ridge * shift;
    a.bottomRightCorner(f, f).selfadjointView<Eigen::Lower>().rankUpdate(shift, bias_ridge);
    right.row(0) -= bias_ridge * centre;
    right.bottomRows(f) += bias_ridge * shift * centre;
  }
  a.triangularView<Eigen::StrictlyUpper>() = a.transpose();
  const Eigen::VectorXd scale =
    a.diagonal().unaryExpr([](double x) { return x > 0 ? 1 / std::sqrt(x) : 1; });
  a = scale.asDiagonal() * a * scale.asDiagonal();

  least_squares_solution result;
  const Eigen::LLT<matrix> factor(a);
  const auto pivots = factor.matrixLLT().diagonal().array().square();
  if (factor.info() != Eigen::Success || !(pivots > least_pivot).all()) {
    for (const auto column : dependent_columns(a))
      if (column >= static_cast<std::size_t>(lead))
        result.dependent.push_back(column - static_cast<std::size_t>(lead));
    if (!result.dependent.empty())
      return result;
  }
  const matrix w = scale.asDiagonal() * factor.solve(scale.asDiagonal() * right);
  result.weights.resize(static_cast<std::size_t>(f * s.targets));
  matrix all = matrix::Zero(s.width(), s.targets);
  all.topRows(f) = w.bottomRows(f);
  all.block(f, 0, s.targets, s.targets) = -matrix::Identity(s.targets, s.targets);
  Eigen::Map<matrix>(result.weights.data(), f, s.targets) = w.bottomRows(f);
  if (s.bias) {
    all.row(last) = w.row(0);
    const Eigen::RowVectorXd bias = w.row(0) + s.centre.tail(s.targets).transpose()
      - s.centre.head(f).transpose() * w.bottomRows(f);
    result.bias.assign(bias.begin(), bias.end());
  }
  const matrix product = s.moments.selfadjointView<Eigen::Lower>() * all;
  result.squared_error = std::max(0.0, all.cwiseProduct(product).sum());
  return result;
}

} // namespace troupe
