#pragma once

#include "actors/model/data_metadata.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Some records of a file without labels. Their labels are zeros.
struct feature_part {
  /// Null after the last part.
  std::shared_ptr<const dataset> records;
  /// Number of records that precede this part in the file.
  std::uint64_t first = 0;
  /// For pictures: the file of each record, as a path relative to the folder.
  std::vector<std::string> files = {};
};

/// Reads records without labels part by part, for predictions. Only one part needs to be in memory.
class feature_files {
public:
  virtual ~feature_files() = default;

  /// The next part, with at least one record.
  /// @throws input_error that names the file: see open_features.
  virtual feature_part next() = 0;
};

/// Opens files of features, which have the format of the job's data. `path` names an .npy, IDX, CSV
/// or LIBSVM file, plain or gzip; several .npy files, given with `*` and `?`; an .npz file, in
/// which the array of features has the name that the job gives; or a folder of pictures. Plain
/// files are mapped, so they may be larger than the memory.
///
/// Features are scaled, and missing values replaced, as in training. Labels in a table or a LIBSVM
/// file are ignored. If pictures are in subfolders, one for each class, these classes are ignored
/// as well.
/// @param facts facts about the training data, such as its scaling and categories
/// @throws input_error that names the file or field: a kind of data that has no file of features
/// (digits, text); records of another shape than in training; missing columns; an unknown category;
/// the errors of the parsers, now or in next().
std::unique_ptr<feature_files> open_features(const proto::Job& job, data_facts facts,
                                             const std::string& path);

} // namespace troupe
