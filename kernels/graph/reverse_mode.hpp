#pragma once

#include "kernels/graph/operations.hpp"

#include <optional>
#include <span>
#include <vector>

// Internal to gradients(); the rules stand in gradients.cpp, gradients_images.cpp and
// gradients_sequences.cpp.

namespace troupe {

/// Reverse mode: walks the nodes from y backwards and asks each for its contribution to the
/// gradients of its inputs.
class reverse_mode {
public:
  reverse_mode(expression y, std::span<const expression> xs)
    : graph_(y.owner()), wanted_(y.id() + 1, false), gradient_(y.id() + 1) {
    for (auto x : xs)
      if (x.id() < wanted_.size())
        wanted_[x.id()] = true;
    // Nodes that depend on some x; only they get a gradient.
    for (std::uint32_t id = 0; id < wanted_.size(); ++id)
      for (auto input : graph_.at(id).inputs)
        wanted_[id] = wanted_[id] || wanted_[input];
    if (wanted_[y.id()])
      gradient_[y.id()] = graph_.constant(1);
    for (auto id = y.id() + 1; id-- > 0;)
      if (gradient_[id])
        visit(id);
  }

  expression of(expression x) {
    if (x.id() < gradient_.size() && gradient_[x.id()])
      return *gradient_[x.id()];
    return graph_.constant(0, x.shape());
  }

private:
  bool wants(std::uint32_t id) const { return wanted_[id]; }

  void give(std::uint32_t id, expression g) {
    auto& total = gradient_[id];
    total = total ? add(*total, g) : g;
  }

  /// Whether g is the constant 1: the common case, a loss that is not combined with others.
  static bool is_one(expression g) {
    const auto& n = g.node();
    return n.op == operation::constant && n.values.size() == 1 && n.values[0] == 1;
  }

  /// x times the scalar g.
  static expression times(expression x, expression g) {
    return is_one(g) ? x : multiply(broadcast(g, x.shape()), x);
  }

  /// Gradient of softmax: y (g - sum_j g_j y_j), y its result.
  static expression softmax_gradient(expression g, expression y) {
    const auto dims = y.shape(); // a copy: appending nodes moves them
    return multiply(y, subtract(g, broadcast_last(sum_last(multiply(g, y)), dims)));
  }

  void visit(std::uint32_t id);
  void give_by(expression mask, std::uint32_t taken, std::uint32_t other, expression g);
  void visit_matmul(const node& n, expression g);
  void visit_elementwise(const node& n, expression y, expression g);
  void visit_reduction(const node& n, expression g);
  void visit_loss(const node& n, expression g);
  void visit_image(const node& n, expression g);
  void visit_channels(const node& n, expression g);
  void visit_sequence(const node& n, expression y, expression g);
  void visit_concat(const node& n, expression g);
  void refuse_sparse_gradient(const node& n) const;
  expression again(const node& n, expression g);
  void visit_recurrent(const node& n, expression y, expression g);

  expression at(std::uint32_t id) { return {graph_, id}; }

  graph& graph_;
  std::vector<bool> wanted_;
  std::vector<std::optional<expression>> gradient_;
};

} // namespace troupe
