#pragma once

#include "kernels/data/dataset.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/table.hpp"
#include "kernels/formats/characters.hpp"
#include "messages/proto/job.pb.h"
#include "messages/proto/wire.pb.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The data of a job, read and split. Immutable; shared by all readers.
struct job_data {
  /// At least one record.
  std::shared_ptr<const dataset> train;
  /// The same widths; may be the training records (see Data.split).
  std::shared_ptr<const dataset> test = nullptr;
  /// For targets: how the columns were scaled, for linear_coefficients.
  std::optional<column_scaling> scaling = std::nullopt;
  /// Evaluated during training, instead of the test records; null if the job has none.
  std::shared_ptr<const dataset> validation = nullptr;
  /// Texts: the characters that tokens stand for.
  std::optional<vocabulary> characters = std::nullopt;
  /// How the features of the file were shifted and scaled for the model, if they were.
  std::optional<feature_scaling> normalization = std::nullopt;
  /// Tables: a name per feature, as "age" or "colour=red". Else empty.
  std::vector<std::string> feature_names = {};
  /// Tables: a name per class of the file. Otherwise empty: classes have numbers only.
  std::vector<std::string> class_names = {};
  /// fingerprint_of() these data, where it is known already.
  std::optional<proto::DataFingerprint> fingerprint = std::nullopt;

  /// What is evaluated during training.
  const std::shared_ptr<const dataset>& evaluated() const noexcept {
    return validation ? validation : test;
  }
};

/// Reads or generates the data of a validated job and splits it.
///
/// Blocking disk access: call from a detached actor or before the actor system starts. Each node
/// may call it; all get the same records under the same numbers.
/// @throws input_error naming the field, file and record: missing, truncated or mislabelled file,
/// unset variable, other counts of images and labels, a label outside the classes (the units of the
/// last layer), a split larger than the data, a batch larger than the training data, unequal widths
/// of training and test files.
job_data build_data(const proto::Job& job);

/// Checks the data that an embedding program supplies for a job, and returns it. If `test` is null,
/// the training records are used for testing.
/// @throws input_error if there are no records, if a batch is larger than the training data, or if
/// training and test records differ in width or kind.
job_data given_data(const proto::Job& job, job_data data);

} // namespace troupe
