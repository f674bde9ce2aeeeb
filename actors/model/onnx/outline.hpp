#pragma once

#include <onnx/onnx_pb.h>

namespace troupe {

/// The nodes of a graph in one list, to see where its tensors go: the nodes in the bodies of loops
/// and branches stand before the node that has these bodies. That node then reads the outputs of
/// the bodies. A node Identity leads from each tensor that a loop begins with to the name that the
/// body gives it; its second input is what the body computes for the next step, which stands behind
/// it. Initializers, which include those of the bodies, have no values.
onnx::GraphProto outline_of(const onnx::GraphProto& graph);

} // namespace troupe
