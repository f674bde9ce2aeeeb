#include "kernels/cpu/executor_state.hpp"
#include "kernels/cpu/flush_denormals.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

// Finds the first tensor with an element that is not finite.

namespace troupe {

namespace {

template <class T>
bool finite(const T* values, std::size_t n) {
  return values == nullptr || std::all_of(values, values + n, [](T x) { return std::isfinite(x); });
}

template <class T>
bool finite(const feed<T>& x, const shape& dims, std::size_t rows) {
  if (x.sparse.starts == nullptr)
    return finite(x.values, dims.elements(rows));
  const auto* const starts = x.sparse.starts;
  return finite(x.sparse.values + starts[0], static_cast<std::size_t>(starts[rows] - starts[0]));
}

template <class T>
bool finite(const executor_state<T>& s, const operand& made) {
  const auto n = s.elements(made);
  if (!is_narrow(made.type))
    return finite(s.write(made), n);
  const auto* const x = reinterpret_cast<const std::uint16_t*>(s.write(made));
  const std::uint16_t exponent = made.type == dtype::bfloat16 ? 0x7f80 : 0x7c00;
  return std::all_of(x, x + n, [=](std::uint16_t bits) { return (bits & exponent) != exponent; });
}

/// Names of results are internal. Therefore this class finds the weights that a result is computed
/// from, directly or through earlier results. Their names contain the name of their layer.
class nearest_weights {
public:
  explicit nearest_weights(const layout& parameters) : parameters_(parameters) {}

  /// Takes the instructions in their order.
  void add(const instruction& x) {
    name_.clear();
    for (const auto& from : x.inputs)
      add(from);
    add(x.bias);
    x.each_result([&](const operand& made) {
      if (made.where == operand::place::arena)
        names_[made.index] = name_;
    });
  }

  /// The weights that the newest instruction uses last; empty if there are none.
  const std::string& name() const { return name_; }

private:
  void add(const operand& from) {
    if (from.where == operand::place::weight)
      name_ = parameters_.entries()[from.index].name;
    else if (from.where == operand::place::arena && !names_[from.index].empty())
      name_ = names_[from.index];
  }

  const layout& parameters_;
  std::string name_;
  /// For each place in the arena.
  std::map<std::size_t, std::string> names_;
};

} // namespace

template <class T>
std::string executor<T>::find_not_finite(const run_arguments<T>& arguments) {
  auto& s = *state_;
  s.bind(arguments);
  const auto& tensors = s.what->parameters().entries();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!finite(s.weights[i], tensors[i].size))
      return "weights " + tensors[i].name;
  for (std::size_t i = 0; i < s.feeds.size(); ++i)
    if (s.what->reads_feed(i) && !finite(s.feeds[i], s.what->feed(i).shape, s.rows))
      return s.what->feed(i).name;
  for (const auto& part : s.what->zero_gradients())
    std::fill_n(s.gradient + part.begin, part.size(), T(0));
  nearest_weights nearest{s.what->parameters()};
  for (std::size_t i = 0; i < s.code.instructions.size(); ++i) {
    const auto& x = s.what->instructions()[i];
    const cpu::flush_denormals mode;
    s.execute(i);
    const operand* wrong = nullptr;
    x.each_result([&](const operand& made) {
      if (wrong == nullptr && !finite(s, made))
        wrong = &made;
    });
    nearest.add(x);
    if (wrong != nullptr)
      return "result " + wrong->name
        + (nearest.name().empty() ? "" : " (computed with weights " + nearest.name() + ')');
  }
  return {};
}

template std::string executor<float>::find_not_finite(const run_arguments<float>&);
template std::string executor<double>::find_not_finite(const run_arguments<double>&);

} // namespace troupe
