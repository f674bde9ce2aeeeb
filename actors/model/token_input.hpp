#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>

namespace troupe {

/// The number of different tokens that the model knows, or 0 if the data determines this number.
/// For an ONNX model, this is the number of rows of the table that the input selects from, if there
/// is one. A model reads tokens if its features go into an embedding, or if its ONNX input takes
/// whole numbers. For any other model, the result is empty.
std::optional<std::size_t> token_input(const proto::Model& model);

} // namespace troupe
