#pragma once

#include <onnx/onnx_pb.h>

namespace troupe {

/// The nodes of a graph and of the bodies of its loops and branches in one list, from which a
/// reader can see which nodes a tensor reaches. The nodes of a body come before the loop or branch
/// itself, which reads the outputs of the body instead of its own inputs. For each of these inputs,
/// an Identity node copies the input to the name that it has in the body. In a loop, this Identity
/// has a second input: the value that the body computes for the next step, by a node further down
/// the list. Initializers, which include those of the bodies, have no values.
onnx::GraphProto outline_of(const onnx::GraphProto& graph);

} // namespace troupe
