#include "kernels/cuda/operation_table.hpp"

#include "kernels/cuda/dense_product.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/graph/operation_traits.hpp"

#include <algorithm>
#include <array>

namespace troupe::cuda {

namespace {

/// Runs an element-wise operation as a program of one step.
void run_element(const step& s) {
  const auto last = static_cast<std::uint32_t>(s.x.inputs.size() - 1);
  const element_step program[] = {
    {s.x.op, 0, std::min(1U, last), std::min(2U, last), last + 1, s.x.factor}};
  std::array<mixed_input, 3> inputs{};
  for (std::size_t i = 0; i < s.x.inputs.size(); ++i)
    inputs[i] = s.values(i);
  elementwise(s.where(), program, s.elements(),
              std::span<const mixed_input>{inputs}.first(s.x.inputs.size()), 0, s.result());
}

auto all_rows() {
  std::array<operation_row, operation_count> result;
  for (std::size_t i = 0; i < result.size(); ++i)
    if (const auto op = static_cast<operation>(i); is_elementwise(op))
      result[i] = {.op = op, .run = run_element, .mixed = true};
  for (const auto& rows : {dense_rows(), image_rows(), sequence_rows()})
    for (const auto& row : rows)
      result[static_cast<std::size_t>(row.op)] = row;
  return result;
}

/// Element-wise operations that can follow a bias in the same launch. They have one or two
/// operands, and no factor.
constexpr operation endings[] = {
  operation::relu,          operation::relu_gradient, operation::tanh,
  operation::tanh_gradient, operation::sigmoid,       operation::sigmoid_gradient,
  operation::gelu,          operation::gelu_gradient, operation::add};

} // namespace

const operation_row& row_of(operation op) {
  static const auto table = all_rows();
  return table[static_cast<std::size_t>(op)];
}

namespace {

/// True if a GPU can compute a product without conversions: both operands have one type, the result
/// has this type or float32, and the bias is float32.
bool is_native_product(const instruction& x) {
  const auto type = x.inputs[0].type;
  return x.inputs[1].type == type && (x.output.type == type || x.output.type == dtype::float32)
    && !is_narrow(x.bias.type);
}

bool has_one_type(const instruction& x, std::size_t wide_input) {
  for (std::size_t i = 0; i < x.inputs.size(); ++i)
    if (i != wide_input && is_float(x.inputs[i].type) && x.inputs[i].type != x.inputs[0].type)
      return false;
  return (x.output.type == x.inputs[0].type || x.output.type == dtype::float32)
    && !is_narrow(x.gradient.type) && !is_narrow(x.correct.type);
}

} // namespace

bool is_native(const instruction& x) {
  if (x.op == operation::matmul || x.op == operation::batched_matmul)
    return is_native_product(x);
  const auto& row = row_of(x.op);
  const bool fits = !is_narrow(x.bias.type)
    && (row.wide_input >= x.inputs.size() || !is_narrow(x.inputs[row.wide_input].type));
  return fits && (row.mixed || (row.narrow && has_one_type(x, row.wide_input)));
}

namespace {

/// True if the result of the operation must stay in float32 until the bias and the epilogue are
/// applied, because the final result has 16 bits.
bool keeps_product(const instruction& x) {
  return is_narrow(x.output.type) && (x.bias.exists() || x.after);
}

} // namespace

mixed_output step::product() const {
  return keeps_product(x) ? mixed_output{reinterpret_cast<float*>(space())} : result();
}

std::size_t space_of_product(const instruction& x, std::size_t rows) {
  return keeps_product(x) ? (x.output.shape.elements(rows) + 1) / 2 : 0;
}

void finish(const step& s, std::size_t channels, std::size_t inner) {
  finish(s.where(),
         {s.elements(), channels, inner, static_cast<const float*>(s.product().data),
          s.run.read(s.x.bias), s.last(), s.result()});
}

const fusion_table& fusion() {
  static const auto table = [] {
    fusion_table result;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto& row = row_of(static_cast<operation>(i));
      result[i] = {row.takes_epilogue, row.bias,
                   std::ranges::find(endings, static_cast<operation>(i)) != std::end(endings)};
    }
    return result;
  }();
  return table;
}

} // namespace troupe::cuda
