// Fuzz target: ONNX models. As in a job, they are parsed, imported with inputs of their shapes,
// split into structure and weights, planned and run.

#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/plan_cost.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/graph.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <cstring>

using namespace troupe;

namespace {

constexpr std::size_t rows = 2;

/// True if running the model takes little memory and time. Larger models are not run: a fuzzer
/// makes tensors of any size.
bool is_small(const graph& g, const std::vector<expression>& outputs) {
  constexpr std::size_t most_elements = 1 << 16;
  constexpr std::uint64_t most_flops = 1 << 22;
  std::size_t elements = 0;
  for (const auto& n : g.nodes()) {
    std::size_t extent = 1;
    for (const auto x : n.shape.extents()) {
      const auto size = x == shape::batch ? rows : static_cast<std::size_t>(x);
      if (size > most_elements)
        return false;
      extent *= size;
      if (extent > most_elements)
        return false;
    }
    elements += extent;
  }
  if (elements > most_elements)
    return false;
  auto options = cpu_plan_options();
  options.max_rows = rows;
  options.fetches = outputs;
  const plan planned{g, options};
  constexpr std::size_t most_bytes = 3 << 20;
  const auto memory = memory_of(planned);
  return cost_of(planned).flops <= most_flops && memory.arena + memory.scratch <= most_bytes;
}

/// Runs the model twice. Both runs must give the same bits. The outputs must have the sizes that
/// their shapes say.
void run_twice(const graph& g, const onnx_model& model, const std::vector<expression>& inputs,
               const std::vector<expression>& outputs) {
  graph_session<float> session{g};
  std::ranges::copy(model.values(g.parameters()), session.variables().begin());
  std::vector<std::vector<float>> numbers;
  std::vector<std::vector<std::int32_t>> integers;
  for (const auto& x : inputs) {
    const auto n = x.shape().elements(rows);
    auto& values = numbers.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<float>(i % 7) - 3;
    integers.emplace_back(n);
  }
  std::vector<session_feed<float>> feeds;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].node().type == dtype::int32)
      feeds.emplace_back(inputs[i], std::span<const std::int32_t>{integers[i]});
    else
      feeds.emplace_back(inputs[i], std::span<const float>{numbers[i]});
  const auto first = session.run(feeds, outputs);
  const auto second = session.run(feeds, outputs);
  const auto given = std::ranges::any_of(
    inputs, [](const expression& x) { return x.shape().has_batch() && x.shape().elements(1) > 0; });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    fuzz::require(first[i].size() == outputs[i].shape().elements(given ? rows : 1),
                  "an output has the size of its shape");
    fuzz::require(
      first[i].size() == second[i].size()
        && std::memcmp(first[i].data(), second[i].data(), first[i].size() * sizeof(float)) == 0,
      "a second run gives the same bits");
  }
}

} // namespace

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
  std::vector<expression> results;
  for (const auto& output : outputs)
    results.push_back(output.x);
  if (is_small(g, results))
    run_twice(g, model, inputs, results);
}
