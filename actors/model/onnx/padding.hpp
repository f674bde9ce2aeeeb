#pragma once

#include "actors/model/onnx/node.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// v with `before` and `behind` more elements of this value along an axis, which must not be the
/// batch. v must not be a constant. Internal to actors/model/onnx.
onnx_value padded(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t before,
                  std::int64_t behind, double value);

} // namespace troupe
