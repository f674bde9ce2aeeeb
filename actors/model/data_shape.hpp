#pragma once

#include "kernels/data/dataset.hpp"
#include "messages/proto/data.pb.h"

#include <cstdint>
#include <string>

namespace troupe {

/// The facts about the data that a model needs. Nodes that cannot read the data get them from the
/// coordinator.
struct data_shape : record_shape {
  std::uint64_t train_records = 0;

  bool operator==(const data_shape&) const = default;
};

data_shape shape_of(const dataset& x);

/// "8000 training records of (1, 28, 28) numbers and 10 classes".
std::string to_string(const data_shape& x);

proto::DataShape to_proto(const data_shape& x);

/// Throws input_error for dimensions that are impossible for a tensor.
data_shape from_proto(const proto::DataShape& x);

} // namespace troupe
