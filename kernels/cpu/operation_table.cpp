#include "kernels/cpu/operation_table.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/graph/operation_traits.hpp"

namespace troupe {

namespace cpu {

namespace {

template <class T>
void run_element(const step<T>& s) {
  const T* const c = s.operand(2);
  const auto factor = static_cast<T>(s.x.factor);
  auto* const loop = loop_of<T>(s.x.op);
  s.run.split(s.elements(), least_elements, [&](range part, std::size_t) {
    const auto at = [&](const T* operand) {
      return operand != nullptr ? operand + part.begin : nullptr;
    };
    loop(part.size(), s.a + part.begin, at(s.b), at(c), factor, s.out + part.begin);
  });
}

template <class T>
auto all_rows() {
  std::array<operation_row<T>, operation_count> result;
  for (std::size_t i = 0; i < result.size(); ++i)
    if (const auto op = static_cast<operation>(i); loop_of<T>(op) != nullptr)
      result[i] = {.op = op, .run = run_element<T>};
  for (const auto& rows : {dense_rows<T>(), image_rows<T>(), sequence_rows<T>()})
    for (const auto& row : rows)
      result[static_cast<std::size_t>(row.op)] = row;
  return result;
}

} // namespace

template <class T>
const operation_row<T>& row_of(operation op) {
  static const auto table = all_rows<T>();
  return table[static_cast<std::size_t>(op)];
}

std::size_t sums_needed(const instruction& x) {
  const bool sums = x.key != 0 && row_of<float>(x.op).sums != nullptr;
  return sums ? 2 * static_cast<std::size_t>(x.inputs[0].shape[1]) : 0;
}

template const operation_row<float>& row_of(operation);
template const operation_row<double>& row_of(operation);

} // namespace cpu

const fusion_table& cpu_fusion() {
  static const auto table = [] {
    fusion_table result;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto op = static_cast<operation>(i);
      const auto& row = cpu::row_of<float>(op);
      result[i] = {row.takes_epilogue, row.bias, cpu::is_epilogue(op)};
    }
    return result;
  }();
  return table;
}

} // namespace troupe
