#pragma once

#include "actors/model/job_context.hpp"
#include "actors/model/job_file.hpp"

#include <memory>
#include <string>

namespace troupe::test {

/// A model for texts of three characters, in windows of four. `layers` are layers in the syntax of
/// a job file.
inline std::shared_ptr<const job_context> text_model(const std::string& layers) {
  const auto job = parse_job("model { " + layers
                               + " loss: SOFTMAX_CROSS_ENTROPY } "
                                 "data { text { path: \"x\" window: 4 } batch: 1 }",
                             "job");
  data_shape data;
  data.train_records = 1;
  data.features = feature_kind::tokens;
  data.dims = {4};
  data.vocabulary = data.label_width = 3;
  data.labels_per_record = 4;
  return make_job_context(job, data);
}

} // namespace troupe::test
