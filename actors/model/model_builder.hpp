#pragma once

#include "kernels/data/record.hpp"
#include "kernels/graph.hpp"
#include "messages/proto/job.pb.h"

#include <memory>

namespace troupe {

/// The graph of a job's model, and the nodes that a run feeds or reads.
///
/// Its layout is `graph->parameters()`. Placeholders, in feed order: 0 features, 1 labels. Movable;
/// the expressions stay valid as long as `graph` lives. To be read by any number of threads.
struct built_model {
  std::unique_ptr<troupe::graph> graph;
  expression features; ///< "features": (batch, dims...), float32, or int32 for tokens
  expression labels;   ///< "labels": int32 (batch), or (batch, labels_per_record) where there are
                       ///< several; or float32 (batch, label_width)
  expression
    output;        ///< what the last layer makes, (batch, units): logits with softmax cross-entropy
  expression loss; ///< scalar, summed over the samples of the run
  expression
    correct; ///< samples whose label has the largest logit; not valid() for mean squared error
};

/// Builds the graph of a validated model for such data.
/// @throws input_error naming the layer: the loss does not fit the kind of labels; labels beyond
/// the classes (units of the last layer); another number of targets than units.
built_model build_model(const proto::Model& model, const record_shape& data);

/// Whether the model is linear in its features: one dense layer without activation, and mean
/// squared error. Its coefficients can then be given in the units of the data
/// (linear_coefficients).
bool is_linear(const proto::Model& model);

} // namespace troupe
