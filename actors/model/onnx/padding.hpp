#pragma once

#include "actors/model/onnx/node.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// v with `before` elements added in front and `behind` elements added at the end of an axis. All
/// added elements are `value`. The axis must not be the batch, and v must not be a constant.
/// Internal to actors/model/onnx.
onnx_value padded(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t before,
                  std::int64_t behind, double value);

} // namespace troupe
