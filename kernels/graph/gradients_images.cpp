#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/reverse_mode.hpp"

namespace troupe::gradient_rules {

void conv2d(const gradient_step& s) {
  const auto& how = s.node.window;
  if (s.wants(0))
    s.give(0, conv2d_input_gradient(s.g, s.x(1), how, s.x(0).shape()));
  if (s.wants(1))
    s.give(1, conv2d_weight_gradient(s.x(0), s.g, how));
}

void conv2d_input_gradient(const gradient_step& s) { // the operation is linear in dy and in w
  const auto& how = s.node.window;
  if (s.wants(0))
    s.give(0, conv2d(s.g, s.x(1), how));
  if (s.wants(1))
    s.give(1, conv2d_weight_gradient(s.g, s.x(0), how));
}

void conv2d_weight_gradient(const gradient_step& s) { // the operation is linear in x and in dy
  const auto& how = s.node.window;
  if (s.wants(0))
    s.give(0, conv2d_input_gradient(s.x(1), s.g, how, s.x(0).shape()));
  if (s.wants(1))
    s.give(1, conv2d(s.x(0), s.g, how));
}

} // namespace troupe::gradient_rules
