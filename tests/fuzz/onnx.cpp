// ONNX models, as a job uses them: parsed, imported for inputs of their shapes, and split into
// structure and weights.

#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/graph/graph.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(onnx, input) {
  const auto model = onnx_model::parse(input, "model.onnx");
  std::size_t elements = 0;
  for (const auto& weight : model.weights())
    elements += weight.shape.elements();
  fuzz::require(elements * sizeof(float) <= input.size(), "weights are in the file");
  const auto bytes = model.structure();
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  fuzz::require(structure.structure() == bytes, "a structure is its own structure");
  graph g;
  std::vector<expression> inputs;
  bool in_front = true;
  for (const auto& port : onnx_inputs(model)) {
    auto dims = port.dims;
    if (in_front && !dims.empty())
      dims[0] = shape::batch;
    in_front = false;
    for (std::size_t i = 1; i < dims.size(); ++i)
      dims[i] = dims[i] < 0 ? 3 : dims[i];
    inputs.push_back(g.placeholder(port.name, shape{dims}, port.type));
  }
  const auto outputs = import_onnx(model, g, inputs);
  fuzz::require(outputs.size() == onnx_outputs(model).size(), "each output is made");
  fuzz::require(model.values(g.parameters()).size() == g.parameters().size(),
                "each parameter has values");
}
