#include "kernels/error.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/reverse_mode.hpp"

namespace troupe {

void reverse_mode::visit_channels(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  switch (n.op) {
  case operation::multiply_channels:
    if (wants(n.inputs[1]))
      give(n.inputs[1], sum_channels(multiply(g, a)));
    if (wants(a.id()))
      give(a.id(), multiply_channels(g, at(n.inputs[1])));
    break;
  case operation::normalize_channels:
    if (wants(a.id()))
      give(a.id(), normalize_channels_gradient(g, a, at(n.inputs[1]), n.factor));
    break;
  case operation::normalize_channels_gradient:
    throw input_error("gradients: \"" + n.name
                      + "\" is the gradient of a normalization over the batch, which cannot be "
                        "differentiated again");
  default: // Moments and their sums are not part of any loss.
    break;
  }
}

void reverse_mode::visit_image(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = n.inputs.size() > 1 ? at(n.inputs[1]) : a;
  const auto& how = n.window;
  // The gradient of the inputs comes first, as in visit_matmul.
  switch (n.op) {
  case operation::conv2d:
    if (wants(a.id()))
      give(a.id(), conv2d_input_gradient(g, b, how, a.shape()));
    if (wants(b.id()))
      give(b.id(), conv2d_weight_gradient(a, g, how));
    break;
  case operation::conv2d_input_gradient: // linear in dy and in w
    if (wants(a.id()))
      give(a.id(), conv2d(g, b, how));
    if (wants(b.id()))
      give(b.id(), conv2d_weight_gradient(g, a, how));
    break;
  case operation::conv2d_weight_gradient: // linear in x and in dy
    if (wants(a.id()))
      give(a.id(), conv2d_input_gradient(b, g, how, a.shape()));
    if (wants(b.id()))
      give(b.id(), conv2d(a, g, how));
    break;
  case operation::add_channel_bias:
    if (wants(b.id()))
      give(b.id(), sum_channels(g));
    if (wants(a.id()))
      give(a.id(), g);
    break;
  case operation::sum_channels:
    give(a.id(), broadcast_channels(g, a.shape()));
    break;
  case operation::broadcast_channels:
    give(a.id(), sum_channels(g));
    break;
  case operation::max_pool_select: // linear in v; a step function of x
    if (wants(a.id()))
      give(a.id(), max_pool_gradient(g, b, how));
    break;
  case operation::max_pool_gradient: // linear in dy
    if (wants(a.id()))
      give(a.id(), max_pool_select(g, b, how));
    break;
  case operation::average_pool:
    give(a.id(), average_pool_gradient(g, how, a.shape()));
    break;
  case operation::average_pool_gradient:
    give(a.id(), average_pool(g, how));
    break;
  case operation::reshape:
    give(a.id(), reshape(g, a.shape()));
    break;
  default:
    visit_channels(n, g);
    break;
  }
}

} // namespace troupe
