#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct data_shape;
struct built_model;

/// Measures of a model on a data set, in addition to its loss and accuracy. Only the measures that
/// the job asks for (evaluate.measure) are present. Ignored labels do not count. If an output is
/// not finite, only the perplexity is present.
struct measured {
  /// Share of the labels that are among the five classes with the largest outputs. Among equal
  /// outputs, the class with the lower number comes first.
  std::optional<double> top_5;
  /// For two classes, the probability that a record of class 1 has a larger output than a record of
  /// class 0. Equal outputs count half (Mann and Whitney, 1947). Absent if one of the two classes
  /// has no records.
  std::optional<double> auc;
  /// Mean F1 score over the classes. For a class, it is 2 true positives / (labels + predictions).
  /// A class without labels and predictions is left out.
  std::optional<double> f1;
  /// exp of the mean loss over the labels that are not ignored.
  std::optional<double> perplexity;
  /// Number of labels for each class (row) and predicted class (column), row by row.
  std::vector<std::uint64_t> confusion;

  /// The numbers that are present, by name: "top_5", "auc", "f1", "perplexity".
  std::vector<std::pair<std::string, double>> numbers() const;
  /// Number of classes in `confusion`.
  std::size_t classes() const noexcept;
};

/// Checks the measures that a job asks for.
/// @throws input_error if a measure does not fit the loss, the labels or the number of classes.
void check_measures(const proto::Job& job, const data_shape& data, const built_model& model);

/// Computes the measures of a job. The caller adds records group by group.
class measurer {
public:
  explicit measurer(const proto::Job& job);

  bool wanted() const noexcept { return wants_ != 0; }

  /// @param labels classes, one per row of the outputs
  /// @param outputs (labels, units); one unit means two classes
  void add(std::span<const std::int32_t> labels, std::span<const float> outputs);

  /// The measures over all records added so far. `loss` is their mean loss, in which ignored labels
  /// count as 0.
  measured result(double loss) const;

private:
  bool wants(proto::Measure x) const noexcept { return (wants_ >> x & 1U) != 0; }
  void count(std::size_t label, std::span<const float> outputs);
  double f1() const;
  std::optional<double> auc() const;

  unsigned wants_ = 0;
  /// True if an output was not finite.
  bool broken_ = false;
  std::optional<std::int32_t> ignored_;
  std::size_t labels_ = 0; ///< without ignored ones
  std::size_t all_labels_ = 0;
  std::size_t in_top_5_ = 0;
  std::size_t classes_ = 0;
  std::vector<std::uint64_t> confusion_;
  /// For AUC: the output for class 1 minus the output for class 0, and whether the label is class
  /// 1.
  std::vector<std::pair<float, bool>> scores_;
};

} // namespace troupe
