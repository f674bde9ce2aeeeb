#pragma once

#include <string>

namespace onnx {
class GraphProto;
class NodeProto;
} // namespace onnx

namespace troupe {

/// "node "NAME" (OPERATOR)".
std::string onnx_node_text(const onnx::NodeProto& node);

/// Throws input_error "MODEL: ..." if a name is missing, defined twice or used before its
/// definition, also in the bodies of loops and branches. A body can read the names that are defined
/// before the node of its loop or branch, and must not define these names again.
void check_onnx_names(const onnx::GraphProto& graph, const std::string& model);

} // namespace troupe
