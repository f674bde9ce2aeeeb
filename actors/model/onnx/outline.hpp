#pragma once

#include <onnx/onnx_pb.h>

namespace troupe {

/// The nodes of a graph and of its bodies (of loops and branches) in one list, to see where tensors
/// go. The nodes of a body come before the node that has the body; that node reads the outputs of
/// the body instead of its own inputs. For each of the node's inputs, an Identity node copies it to
/// the name that the body gives it. In a loop, this Identity has a second input: the value that the
/// body computes for the next step, by a node further down the list. Initializers, which include
/// those of the bodies, have no values.
onnx::GraphProto outline_of(const onnx::GraphProto& graph);

} // namespace troupe
