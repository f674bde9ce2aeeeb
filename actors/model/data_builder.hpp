#pragma once

#include "kernels/data/dataset.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/table.hpp"
#include "kernels/formats/characters.hpp"
#include "messages/proto/data.pb.h"
#include "messages/proto/job.pb.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Facts about the columns of a table, from its training records. Keys are names of columns.
struct column_facts {
  /// The categories of each column that contains categories, in order.
  std::map<std::string, std::vector<std::string>> categories = {};
  /// With `missing: MEAN` or `MEDIAN`: the number that replaces missing values in each column of
  /// numbers.
  std::map<std::string, double> replacements = {};
  /// If a name in csv.features has a wildcard: the columns that it stands for, and all others, in
  /// order.
  std::vector<std::string> names = {};
};

/// The data of a job, read and split. Immutable; shared by all readers.
struct job_data {
  /// The training records; at least one.
  std::shared_ptr<const dataset> train;
  /// For tables with a target (a number to predict): the scaling of all columns. With it,
  /// linear_coefficients() converts coefficients to the units of the file.
  std::shared_ptr<const dataset> test = nullptr;
  /// For targets: how the columns were scaled. linear_coefficients() uses it to convert
  /// coefficients to the units of the file.
  std::optional<column_scaling> scaling = std::nullopt;
  /// The validation records, which training evaluates instead of the test records. Null if the job
  /// has none.
  std::shared_ptr<const dataset> validation = nullptr;
  /// For texts: the character of each token.
  std::optional<vocabulary> characters = std::nullopt;
  /// The shift and scale that were applied to the features of the file. Nothing if features are not
  /// normalized.
  std::optional<feature_scaling> normalization = std::nullopt;
  /// For tables: the name of each feature, such as "age" or "color=red". Otherwise empty.
  std::vector<std::string> feature_names = {};
  /// For tables: the name of each class in the file. Otherwise empty, because classes only have
  /// numbers.
  std::vector<std::string> class_names = {};
  /// For tables.
  column_facts columns = {};
  /// Facts that the user should know, such as records that no part uses.
  std::vector<std::string> notices = {};
  /// The result of fingerprint_of() for these data, if already known.
  std::optional<proto::DataFingerprint> fingerprint = std::nullopt;

  /// The records that training evaluates: the validation records if there are any, otherwise the
  /// test records.
  const std::shared_ptr<const dataset>& evaluated() const noexcept {
    return validation ? validation : test;
  }
};

/// Reads or generates the data of a validated job and splits it.
///
/// Blocks on the disk: call it from a detached actor (which has its own thread), or before the
/// actor system starts. Each node may call it. Record i is the same on all nodes.
/// @throws input_error that names the field, file and record: a file that is missing, cut off or of
/// another format, an environment variable that is not set, different numbers of images and labels,
/// a label outside the classes (the units of the last layer), a split larger than the data, unequal
/// widths of training and test files.
job_data build_data(const proto::Job& job);

/// Like build_data(), for new data of a trained model. For tables, `trained` supplies the
/// categories and the replacements of missing values. Columns that it does not name get their own.
job_data build_new_data(const proto::Job& job, const column_facts& trained);

/// Like build_data(), for a job that trains. Also throws input_error if a batch is larger than the
/// training data.
job_data build_training_data(const proto::Job& job);

/// Checks the data that a program which embeds troupe supplies for a job, and returns them. If
/// `test` is null, the training records are used for testing.
/// @throws input_error if there are no records, if a batch is larger than the training data, or if
/// training, validation and test records differ in width or kind.
job_data given_data(const proto::Job& job, job_data data);

} // namespace troupe
