#pragma once

#include "actors/model/data_builder.hpp"

namespace troupe {

// Readers of the file formats of data sources: parts of build_data, whose comment lists their
// errors. Internal to actors/model.

job_data build_csv(const proto::Job& job);
job_data build_npy(const proto::Job& job);
job_data build_npz(const proto::Job& job);
job_data build_text(const proto::Job& job);
job_data build_libsvm(const proto::Job& job);

/// Classes of the model: units of its last layer, for the softmax loss; 0: not known.
std::size_t classes_of(const proto::Model& model);

/// Applies Data.normalize, computed from the training records.
job_data normalize(const proto::Data& data, job_data x);

} // namespace troupe
