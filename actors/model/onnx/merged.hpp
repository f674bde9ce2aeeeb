#pragma once

#include <set>
#include <string>
#include <string_view>

namespace onnx {
class GraphProto;
} // namespace onnx

namespace troupe {

/// Throws input_error "MODEL: ..." if one tensor of the file probably stands for several
/// parameters. Some exporters merge tensors with equal values, such as the biases of two new
/// layers. tf2onnx does, and so does PyTorch's older exporter outside of training mode. Training
/// the merged tensor would keep these parameters equal.
///
/// Tensors that the model itself shares are accepted: if a layer is used twice, then the layer's
/// other parameters, or the layers around it, are the same too. So a tensor is refused only if all
/// its elements are equal, and two nodes read it
///
/// - as the bias of products with different weights, or
/// - as the scale or shift of values, where both the previous products and the next products have
///   different weights, or
/// - in different roles.
///
/// The bias of two recurrent operators with different weights is refused for any values, because a
/// new LSTM of Keras has biases of 0 and 1. A tensor is also refused if it stands for both biases
/// of a recurrent operator.
/// @param trained the names of the tensors that are trained
void refuse_merged(const onnx::GraphProto& graph, const std::set<std::string, std::less<>>& trained,
                   const std::string& model);

/// Throws input_error "MODEL: ..." if a trained matrix equals the transpose of another matrix of
/// the file, and PyTorch's exporter has computed one of them. Then the model probably uses one
/// weight twice, for example as an embedding and as the output layer. Training would change each of
/// the copies alone.
void refuse_copied(const onnx::GraphProto& graph, const std::set<std::string, std::less<>>& trained,
                   const std::string& model);

} // namespace troupe
