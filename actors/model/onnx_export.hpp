#pragma once

#include "kernels/graph.hpp"

#include <span>
#include <string>

namespace troupe {

/// A part of a graph as a model in the ONNX format (operator set 17): from `input`, whose batch may
/// be of any size, to `output`, both under these names. Variables keep their names, shapes and
/// order of elements, so that the file can be trained on, here or elsewhere; weights that ONNX
/// wants in another order (gates of recurrent layers) are reordered by nodes of the model.
/// @param weights the flat parameter vector of the graph
/// @param name of the model, for people
/// @return the bytes of the file
/// @throws input_error: the output depends on other placeholders; operations that ONNX does not
/// have (gradients); more than 2 GiB
std::string export_onnx(expression input, expression output, std::span<const float> weights,
                        const std::string& name);

} // namespace troupe
