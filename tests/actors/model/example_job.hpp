#pragma once

#include "actors/model/job_file.hpp"

namespace troupe::test {

/// A small, valid job that trains on generated digits.
inline proto::Job digits_job() {
  return parse_job(R"(
    name: "small"
    model {
      layer { dense { units: 16 activation: RELU } }
      layer { name: "head" dense { units: 10 } }
      loss: SOFTMAX_CROSS_ENTROPY
    }
    data { digits { train: 100 test: 20 } batch: 8 }
    optimizer { kind: MOMENTUM momentum: 0.5 }
    learning_rate { base: 0.1 step { every_epochs: 2 factor: 0.5 } }
    epochs: 3)",
                   "job");
}

/// A linear model on two columns of a CSV file.
inline proto::Job csv_job(const std::string& path) {
  auto job = parse_job(R"(
    model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
    data { csv { features: "a" features: "b" target: "y" } batch: 2 })",
                       "job");
  job.mutable_data()->mutable_csv()->set_path(path);
  return job;
}

} // namespace troupe::test
