#pragma once

#include "actors/model/layer_list.hpp"
#include "actors/model/parameter_choice.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace troupe {

/// The output of a layer in training and in testing. If training and testing compute the same, both
/// members are the same expression. Otherwise, they are two expressions over the same variables.
struct layer_output {
  expression training;
  expression testing;

  bool same() const { return training == testing; }
};

/// Adds layers of the job file to a graph. Variables have the names that PyTorch uses. Internal to
/// actors/model.
class layer_builder {
public:
  /// @param vocabulary the number of tokens in the data, for embeddings; 0 if the data has no
  /// tokens
  /// @param choice decides for each variable whether it is trained
  layer_builder(graph& owner, std::size_t vocabulary, parameter_choice& choice)
    : graph_(owner), vocabulary_(vocabulary), choice_(choice) {}

  /// Appends a layer. The last node of the layer gets the layer's name.
  /// @throws input_error if shapes do not fit. It names the layer, its inputs with their shapes,
  /// and the line of the job file.
  layer_output add(const listed_layer& layer, std::span<const layer_output> inputs);

private:
  expression build(const proto::Layer& layer, std::span<const expression> inputs, bool training);
  expression build_image(const proto::Layer& layer, expression x, bool training);
  expression build_sequence(const proto::Layer& layer, expression x);
  expression build_combination(const proto::Layer& layer, std::span<const expression> inputs);
  expression variable(const std::string& tensor, const shape& dims, const initializer& initial = {},
                      parameter_kind kind = parameter_kind::trainable, double decay = 0);
  expression dense(expression x, const std::string& tensor, std::int64_t units,
                   const initializer& weights, bool bias, const std::string& bias_tensor);
  /// @tparam Fields proto::Conv2d, or proto::ConvTranspose2d for a transposed convolution
  template <class Fields>
  expression convolution(expression x, const Fields& how);
  expression normalized_batch(expression x, const proto::BatchNorm& how, bool training);
  expression embedded(expression x, const proto::Embedding& how);
  expression positions_added(expression x, const proto::PositionEmbedding& how);
  expression recurrent(expression x, const proto::Recurrent& how, cell kind);
  /// Computes one direction of one recurrent layer. The names of its tensors end with `suffix`.
  expression one_direction(expression x, const proto::Recurrent& how, cell kind,
                           const std::string& suffix);
  expression attention(expression x, expression other, const proto::Attention& how);

  graph& graph_;
  std::size_t vocabulary_;
  parameter_choice& choice_;
  /// The name of the layer that is being built.
  std::string name_;
  std::map<std::string, expression> variables_;
};

} // namespace troupe
