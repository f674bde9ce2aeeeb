#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/data/dataset.hpp"
#include "kernels/optimizers/least_squares.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Solves a linear model in one pass over the training data (`solver: EXACT`). The job's gradient
/// descent converges to the same result. With SGD, the gradient of a step is 0 if
///
///   2 / (N K) (X'X W - X'Y) + weight_decay W = 0
///
/// with N samples, K targets, and a column of ones for the bias. Therefore, W minimizes the sum of
/// squared errors + ridge |W|^2, with ridge = weight_decay N K / 2. As in SGD, the ridge also
/// applies to the bias, if the bias is not in a group (optimizer.group) with another weight decay.
/// The ridge on the bias makes no difference if features and targets have mean 0
/// (data.csv.standardize without categories).
class exact_solution {
public:
  /// `context` and `train` must outlive this object. The model of `context` must be linear
  /// (is_linear).
  /// @param names the names of the features, for error messages; may be empty
  exact_solution(const job_context& context, const dataset& train,
                 std::vector<std::string> names = {});

  /// Reads the next records, a few MiB at most. Returns false if no records are left.
  bool read_some();

  std::uint64_t samples_read() const noexcept { return next_; }

  struct result {
    /// The flat parameter vector.
    std::vector<float> weights;
    /// Mean over the training records.
    double train_loss = 0;
  };

  /// Call this after all records have been read.
  /// @throws input_error if the weights are not unique or values are not finite; the error names
  /// the columns
  result solve() const;

private:
  void read_sparse();
  std::string feature_name(std::size_t index) const;
  std::string dependence(const std::vector<std::size_t>& features) const;

  const job_context& context_;
  const dataset& train_;
  std::vector<std::string> names_;
  least_squares sums_;
  std::uint64_t next_ = 0;
  std::vector<std::uint64_t> records_;
  std::vector<float> features_;
  std::vector<float> targets_;
  // Sparse features, before they are made dense.
  std::vector<std::int32_t> row_starts_;
  std::vector<std::int32_t> columns_;
  std::vector<float> values_;
};

} // namespace troupe
