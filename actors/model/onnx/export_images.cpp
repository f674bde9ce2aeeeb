// Operations on images in ONNX.

#include "actors/model/onnx/exporter.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

std::string onnx_exporter::per_channel(std::uint32_t id, std::size_t rank) {
  if (rank < 3)
    return value(id);
  std::vector<std::int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), std::int64_t{1});
  return add("Unsqueeze", {value(id), whole_numbers(axes)});
}

/// Recognizes the result of batch_norm_testing(): (x - mean) gain / sqrt(variance + epsilon) +
/// bias, in which all operands except x are variables. Returns the node variance + epsilon, or
/// null.
const node* onnx_exporter::batch_norm_at(const node& n) const {
  const auto is = [&](std::uint32_t id, operation op) { return at(id).op == op; };
  if (n.op != operation::add_channel_bias || !is(n.inputs[0], operation::multiply_channels)
      || !is(n.inputs[1], operation::variable))
    return nullptr;
  const auto& scaled = at(n.inputs[0]);
  const auto& centered = at(scaled.inputs[0]);
  const auto& factor = at(scaled.inputs[1]);
  if (centered.op != operation::add_channel_bias || factor.op != operation::divide)
    return nullptr;
  const auto& opposite = at(centered.inputs[1]);
  if (opposite.op != operation::scale || opposite.factor != -1
      || !is(opposite.inputs[0], operation::variable) || !is(factor.inputs[0], operation::variable)
      || !is(factor.inputs[1], operation::square_root))
    return nullptr;
  const auto& sum = at(at(factor.inputs[1]).inputs[0]);
  return sum.op == operation::offset && is(sum.inputs[0], operation::variable) ? &sum : nullptr;
}

void onnx_exporter::absorb_batch_norm(const node& n) {
  const auto scaled = n.inputs[0];
  const auto centered = at(scaled).inputs[0];
  if (!read_once(scaled) || !read_once(centered))
    return;
  absorbed_.insert({scaled, centered});
  // `opposite` (-mean) and the nodes in the loop below are computed from parameters only (weights
  // and running statistics), so other nodes may read them, too. Such a node is absorbed if only
  // absorbed nodes read it.
  if (const auto opposite = at(centered).inputs[1]; read_once(opposite))
    absorbed_.insert(opposite);
  const auto factor = at(scaled).inputs[1];
  const auto root = at(factor).inputs[1];
  for (const auto id : {factor, root, at(root).inputs[0]}) {
    if (!read_once(id))
      return;
    absorbed_.insert(id);
  }
}

std::string onnx_exporter::batch_normalized(const node& n) {
  const auto* sum = batch_norm_at(n);
  const auto& scaled = at(n.inputs[0]);
  const auto& centered = at(scaled.inputs[0]);
  const auto& mean = at(centered.inputs[1]).inputs[0];
  const auto& entry = graph_.parameters().entries()[at(sum->inputs[0]).index];
  return add("BatchNormalization",
             {value(centered.inputs[0]), value(at(scaled.inputs[1]).inputs[0]), value(n.inputs[1]),
              value(mean), value(sum->inputs[0])},
             {real("epsilon", sum->factor), real("momentum", 1 - entry.decay)});
}

std::string onnx_exporter::convolution(const node& n, const std::string& bias) {
  const auto& how = n.window;
  std::vector<std::string> inputs{value(n.inputs[0]), value(n.inputs[1])};
  if (!bias.empty())
    inputs.push_back(bias);
  std::vector<attribute> attributes{integers("kernel_shape", {how.height, how.width}),
                                    integers("strides", {how.stride_y, how.stride_x}),
                                    integers("pads", {how.pad_y, how.pad_x, how.pad_y, how.pad_x}),
                                    integers("dilations", {how.dilation_y, how.dilation_x}),
                                    integer("group", how.groups)};
  if (n.op == operation::conv2d)
    return add("Conv", inputs, attributes);
  // The numbers of rows and columns at the end of the image that no position of the window reaches.
  const auto& image = n.shape;
  attributes.push_back(integers("output_padding",
                                {(image[2] + 2 * how.pad_y - how.extent_y()) % how.stride_y,
                                 (image[3] + 2 * how.pad_x - how.extent_x()) % how.stride_x}));
  return add("ConvTranspose", inputs, attributes);
}

std::string onnx_exporter::max_pooled(const node& n) {
  if (n.inputs[0] != n.inputs[1])
    refuse(n, "ONNX has no operator for it");
  return pooled(n);
}

// Before version 22, ONNX's shape inference also counts windows of ceil_mode that begin beyond the
// image, and onnxruntime then refuses the model. So the exported padding leaves no room for them.
std::string onnx_exporter::pooled(const node& n) {
  const auto& how = n.window;
  const auto& image = at(n.inputs[0]).shape;
  const bool mean = n.op == operation::average_pool;
  // The padding with which the last window ends exactly at the end of the padded image. It is
  // larger than the window's padding if ceil_mode adds a position.
  const auto exact_y = (n.shape[2] - 1) * how.stride_y + how.height - image[2] - how.pad_y;
  const auto exact_x = (n.shape[3] - 1) * how.stride_x + how.width - image[3] - how.pad_x;
  const bool adds = exact_y > how.pad_y || exact_x > how.pad_x;
  auto x = value(n.inputs[0]);
  const auto at_end = [&](std::int64_t axis, std::int64_t exact, std::int64_t pad) {
    // Elements beyond the window's padding must not count in a mean, so ceil_mode stays there.
    if (!adds || (mean && exact > pad))
      return pad;
    if (mean && exact < 0) // cuts off what no window reads
      x =
        add("Slice",
            {x, whole_numbers({0}), whole_numbers({image[static_cast<std::size_t>(axis)] + exact}),
             whole_numbers({axis})});
    return std::max<std::int64_t>(exact, 0);
  };
  const std::vector<std::int64_t> pads{how.pad_y, how.pad_x, at_end(2, exact_y, how.pad_y),
                                       at_end(3, exact_x, how.pad_x)};
  std::vector<attribute> attributes{integers("kernel_shape", {how.height, how.width}),
                                    integers("strides", {how.stride_y, how.stride_x}),
                                    integers("pads", pads),
                                    integer("ceil_mode", mean && adds ? 1 : 0)};
  if (mean)
    attributes.push_back(integer("count_include_pad", 1));
  return add(mean ? "AveragePool" : "MaxPool", {x}, attributes);
}

} // namespace troupe
