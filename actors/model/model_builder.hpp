#pragma once

#include "kernels/data/record.hpp"
#include "kernels/graph/graph.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The description of a layer, for people.
struct built_layer {
  std::string name;
  /// The kind and the activation, such as "conv2d relu".
  std::string kind;
  /// Shapes of its inputs and its output.
  std::vector<shape> inputs;
  shape output;
  /// Number of elements in its tensors, including state.
  std::size_t parameters = 0;
};

/// The graph of a job's model, with the nodes that a run feeds or reads.
///
/// Its layout is `graph->parameters()`. Placeholders, in feed order: 0 features, 1 labels. Movable.
/// The expressions stay valid as long as `graph` lives. Any number of threads may read it.
struct built_model {
  std::unique_ptr<troupe::graph> graph;
  expression features; ///< "features": (batch, dims...), float32, or int32 for tokens
  expression labels;   ///< "labels": int32 (batch), or (batch, labels_per_record) if a record has
                       ///< several; or float32 (batch, label_width)
  expression output;   ///< output of the last layer when testing, (batch, units) or (batch, time,
                       ///< units): logits with softmax cross-entropy
  expression loss;     ///< loss when testing: scalar, summed over the samples of the run
  expression correct;  ///< number of labels that are classified correctly; not valid() for targets
  /// The loss when training. It differs from `loss` if the model has dropout or batch
  /// normalization.
  expression training_loss;
  /// All layers in the order of computation, with blocks unrolled.
  std::vector<built_layer> layers;
  /// Frozen parameters and the reasons, for people (parameter_choice).
  std::map<std::string, std::string> frozen;
};

/// Builds the graph of a validated model for data of this shape.
/// @throws input_error that names layers, their shapes, and the line of the job file: the problems
/// of list_layers(); shapes that do not fit; a loss that does not fit the kind of labels; labels
/// beyond the classes (units of the last layer); different numbers of targets and units; the errors
/// of parameter_choice::check.
built_model build_model(const proto::Model& model, const record_shape& data);

/// A notice if the last layer of a classifier has an activation or a softmax. The losses of classes
/// take logits, which are any numbers. Empty if there is none.
std::string logits_notice(const proto::Model& model);

/// The names of all losses, for messages.
std::string loss_names();

/// True if the model is linear in its features: one dense layer without activation, and mean
/// squared error. linear_coefficients() can then give its coefficients in the units of the data.
bool is_linear(const proto::Model& model);

} // namespace troupe
