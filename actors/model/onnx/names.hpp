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
/// definition, also in the bodies of loops and branches. These can read what is defined before
/// their node, and must use other names.
void check_onnx_names(const onnx::GraphProto& graph, const std::string& model);

} // namespace troupe
