#pragma once

#include "actors/model/onnx/node.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// v with more elements of this value along an axis, which is not the batch. v is not a constant.
/// Internal to actors/model/onnx.
onnx_value padded(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t before,
                  std::int64_t behind, double value);

} // namespace troupe
