#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>

namespace troupe {

/// For a model that reads tokens: the number of different tokens that it knows, or 0 if only the
/// data determine this number. The result is empty for any other model.
///
/// A model reads tokens if its features go into an embedding, or if its ONNX input takes whole
/// numbers. For an ONNX model, the result is the number of rows of the table from which the input
/// selects rows, or 0 without such a table.
std::optional<std::size_t> token_input(const proto::Model& model);

} // namespace troupe
