#pragma once

#include "kernels/data/dataset.hpp"
#include "messages/proto/job.pb.h"

#include <optional>

namespace troupe {

/// The mean loss of the best model that ignores the features and gives the same outputs for every
/// record. A model with a higher loss has learned nothing. The value is computed from the labels of
/// up to 4,096 evenly spaced records. The result is empty if the loss does not accept these labels.
///
/// - softmax cross-entropy: the entropy of the labels in nats, with the job's smoothing;
/// - mean squared error: the variance of the targets; mean absolute error: the mean distance from
///   their median;
/// - binary cross-entropy: the entropy of the mean target;
/// - hinge: twice the share of the rarer class.
std::optional<double> constant_guess_loss(const proto::Model& model, const dataset& data);

} // namespace troupe
