#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>

namespace troupe {

/// If the model reads tokens (its features go into an embedding, or its ONNX input takes whole
/// numbers): the number of different tokens that it knows, or 0 if the data determines it. For an
/// ONNX model, this is the number of rows of the table that the input selects from, if there is
/// one. Nothing if the model reads numbers.
std::optional<std::size_t> token_input(const proto::Model& model);

} // namespace troupe
