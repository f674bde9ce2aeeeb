#pragma once

#include "actors/model/data_builder.hpp"

namespace troupe {

// Reads the file formats of data sources. Internal to actors/model; build_new_data
// documents the errors and `trained`.

job_data build_csv(const proto::Job& job, const column_facts& trained);
job_data build_npy(const proto::Job& job);
job_data build_npz(const proto::Job& job);
job_data build_text(const proto::Job& job);
job_data build_libsvm(const proto::Job& job);
job_data build_image_folder(const proto::Job& job);

/// The number of classes that the model has. With the softmax loss, this is the number of units of
/// its last layer. 0 if unknown.
std::size_t classes_of(const proto::Model& model);

/// The problem of a batch that is larger than the training data. Empty if there is none. With
/// data.global_batch alone, the batch depends on the number of workers, and is not checked.
/// @param from the field that sets the number of training records; may be empty
std::string batch_problem(const proto::Data& data, std::uint64_t train_records,
                          const std::string& from = "");

/// Normalizes all records as Data.normalize says, with the statistics of the training records.
job_data normalize(const proto::Data& data, job_data x);

} // namespace troupe
