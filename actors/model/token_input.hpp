#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>

namespace troupe {

/// For a model that reads tokens: the number of different tokens that it knows, 0 if only the data
/// determine this number, or any_int32. The result is empty for any other model.
///
/// A model reads tokens if its features go into an embedding, or if its ONNX input takes whole
/// numbers. For an ONNX model, the result is the number of rows of the table from which the input
/// selects rows (onnx_table_rows), or any_int32 without such a table.
std::optional<std::size_t> token_input(const proto::Model& model);

/// True if the model is an ONNX model whose input has the type INT64.
bool reads_int64(const proto::Model& model);

} // namespace troupe
