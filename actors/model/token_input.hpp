#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>

namespace troupe {

/// For a model that reads tokens: the number of different tokens that it knows, or 0 if the data
/// determines this number. Empty for any other model.
///
/// A model reads tokens if its features go into an embedding, or if its ONNX input takes whole
/// numbers. The number of tokens of an ONNX model is the number of rows of the table from which the
/// input selects rows, or 0 without such a table.
std::optional<std::size_t> token_input(const proto::Model& model);

} // namespace troupe
