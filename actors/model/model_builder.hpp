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

/// A layer of a model, for people.
struct built_layer {
  std::string name;
  /// Such as "conv2d relu".
  std::string kind;
  /// Shapes of its inputs and its output.
  std::vector<shape> inputs;
  shape output;
  /// Number of elements in its tensors, including state.
  std::size_t parameters = 0;
};

/// The graph of a job's model, with the nodes that a run feeds or reads.
///
/// Its layout is `graph->parameters()`. Placeholders, in feed order: 0 features, 1 labels. Movable;
/// the expressions stay valid as long as `graph` lives. To be read by any number of threads.
struct built_model {
  std::unique_ptr<troupe::graph> graph;
  expression features; ///< "features": (batch, dims...), float32, or int32 for tokens
  expression labels;   ///< "labels": int32 (batch), or (batch, labels_per_record) where there are
                       ///< several; or float32 (batch, label_width)
  expression output;   ///< what the last layer makes when testing, (batch, units) or (batch, time,
                       ///< units): logits with softmax cross-entropy
  expression loss;     ///< when testing: scalar, summed over the samples of the run
  expression correct;  ///< how many labels are classified correctly; not valid() for targets
  /// The loss when training. Differs from `loss` with dropout or batch normalization.
  expression training_loss;
  /// In the order in which they are computed, blocks unrolled.
  std::vector<built_layer> layers;
  /// Frozen parameters, and why, for people (parameter_choice).
  std::map<std::string, std::string> frozen;
};

/// Builds the graph of a validated model for such data.
/// @throws input_error naming layers, their shapes, and the line of the job file: what
/// list_layers() refuses; shapes that do not fit; the loss does not fit the kind of labels; labels
/// beyond the classes (units of the last layer); another number of targets than units; what
/// parameter_choice::check refuses.
built_model build_model(const proto::Model& model, const record_shape& data);

/// The names of the losses, for messages.
std::string loss_names();

/// Whether the model is linear in its features: one dense layer without activation, and mean
/// squared error. Its coefficients can then be given in the units of the data
/// (linear_coefficients).
bool is_linear(const proto::Model& model);

} // namespace troupe
