#pragma once

#include <onnx/onnx_pb.h>

namespace troupe {

/// Lists the nodes of a graph, and of the bodies of its loops and branches, in one flat graph. It
/// shows which nodes each tensor reaches:
///
/// - The nodes of a body come before its Loop or If node. This node reads the outputs of the body
///   instead of its own inputs.
/// - An Identity node copies each input of the Loop or If node to its name in the body. For a loop,
///   this Identity has a second input: the value that the body computes for the next step. A node
///   further down the list computes this value.
/// - Initializers, also those of the bodies, have no values.
onnx::GraphProto outline_of(const onnx::GraphProto& graph);

} // namespace troupe
