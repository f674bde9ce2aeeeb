#pragma once

#include "actors/model/data_metadata.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_tester.hpp"
#include "kernels/function_ref.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The prediction for a record: the class with the largest logit, and its probability.
struct class_choice {
  std::size_t which = 0;
  double probability = 0;
};

/// The class with the largest logit. If there is a single logit, there are two classes, and the
/// logit is that of the second class.
class_choice choose_class(std::span<const float> logits);

/// Writes predictions as CSV. Targets are in the units of the data. If the classes have names, the
/// table shows the names.
class prediction_table {
public:
  /// @param labelled true if the records have labels. The table then has columns for the labels.
  prediction_table(const job_context& context, std::vector<std::string> class_names,
                   feature_scaling targets, bool labelled);

  /// The first line of the table.
  /// @param record heading of the column that names the records
  std::string heading(const std::string& record) const;

  /// The lines for these records.
  /// @param name_of returns the text for a record, given its number. The numbers begin at x.first.
  std::string lines(const tested_records& x,
                    function_ref<std::string(std::uint64_t)> name_of) const;

private:
  /// False for a model with a hinge loss, because its outputs are not logits.
  bool has_probabilities() const { return loss_ != proto::HINGE; }
  std::string name_of_class(std::int64_t which) const;
  std::string heading_of_classes() const;
  std::string heading_of_targets() const;
  void add_class(std::string& text, const std::int32_t* label,
                 std::span<const float> outputs) const;
  void add_targets(std::string& text, std::span<const float> targets,
                   std::span<const float> outputs) const;
  void add_sequence(std::string& text, std::span<const std::int32_t> labels,
                    std::span<const float> outputs) const;
  double in_units(float x) const;
  double prediction(float x) const;

  record_shape record_;
  std::size_t units_;
  proto::Loss loss_;
  double smoothing_;
  std::optional<std::int32_t> ignored_;
  std::vector<std::string> names_;
  double mean_;
  double scale_;
  bool labelled_;
};

} // namespace troupe
