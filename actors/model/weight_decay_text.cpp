#include "actors/model/weight_decay_text.hpp"

#include "actors/model/job_context.hpp"
#include "kernels/graph/layout.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace troupe {

namespace {

/// An estimator of scikit-learn, and its parameter that corresponds to weight decay.
struct estimator {
  std::string_view name;
  std::string_view parameter;
  double value = 0;
  /// True if the estimator with this value minimizes the same function as the job.
  bool same = true;
};

bool one_dense_layer(const proto::Model& model) {
  return model.layer_size() == 1 && model.layer(0).has_dense()
    && model.layer(0).dense().activation() == proto::NONE;
}

/// True if the decay is a part of the loss: the optimizer adds it to the gradient, or the exact
/// solver includes it.
bool decays_in_loss(const proto::Job& job) {
  const auto kind = job.optimizer().kind();
  return job.solver() == proto::EXACT || (kind != proto::ADAMW && kind != proto::LAMB);
}

// The job minimizes the mean loss + decay / 2 |w|^2. Ridge minimizes the sum of squared errors +
// alpha |w|^2. LogisticRegression and the support vector machines minimize C times the sum of the
// losses + |w|^2 / 2.
estimator estimator_of(const job_context& context, double decay) {
  const auto& model = context.job.model();
  const auto& data = context.data;
  const auto terms = static_cast<double>(data.train_records * data.label_width);
  const double c = 1 / (decay * static_cast<double>(data.train_records));
  switch (model.loss()) {
  case proto::SOFTMAX_CROSS_ENTROPY:
    // For two classes, scikit-learn has one output. It is the difference of this model's two
    // outputs. The weights of this difference have half the penalty, so C is doubled.
    return {"LogisticRegression", "C", model.layer(0).dense().units() == 2 ? 2 * c : c,
            data.labels_per_record == 1 && model.label_smoothing() == 0
              && !model.has_ignored_label()};
  case proto::BINARY_CROSS_ENTROPY:
    return {"LogisticRegression", "C", c, data.labels == label_kind::classes};
  case proto::HINGE:
    return {"SVC(kernel=\"linear\")", "C", c,
            data.label_width == 1 || data.labels == label_kind::classes};
  case proto::MEAN_ABSOLUTE_ERROR:
    return {"SVR(kernel=\"linear\", epsilon=0)", "C", c, data.label_width == 1};
  default:
    return {"Ridge", "alpha", decay * terms / 2};
  }
}

/// True if all features and targets have mean 0. With squared errors, the intercept is then 0.
bool no_intercept(const proto::Job& job) {
  const auto& csv = job.data().csv();
  return job.model().loss() == proto::MEAN_SQUARED_ERROR && csv.standardize()
    && csv.categories().empty();
}

/// The weight decay of a tensor; 0 if the tensor is not trained.
double decay_of(const job_context& context, std::size_t tensor) {
  const bool trained = context.parameters().entries()[tensor].kind == parameter_kind::trainable;
  return trained ? context.rule_of(tensor).rule.weight_decay : 0;
}

std::string number(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", x);
  return text.data();
}

} // namespace

std::string weight_decay_text(const job_context& context) {
  const auto& job = context.job;
  if (!one_dense_layer(job.model()) || !decays_in_loss(job))
    return {};
  const auto& tensors = context.parameters().entries();
  const double decay = decay_of(context, 0);
  if (!(decay > 0) || context.rule_of(0).rule.l1 > 0)
    return {};
  const auto peer = estimator_of(context, decay);
  const bool penalized = tensors.size() > 1 && decay_of(context, 1) > 0 && !no_intercept(job);
  std::string result;
  if (peer.same) {
    result = "weight_decay is " + std::string{peer.parameter} + " = " + number(peer.value)
      + " of scikit-learn's " + std::string{peer.name};
    if (job.data().csv().standardize())
      result += job.data().csv().has_label() ? ", on standardized features"
                                             : ", on standardized features and target";
  }
  if (penalized)
    result += (peer.same ? "; unlike there, it also penalizes the intercept"
                         : "unlike in scikit-learn, weight_decay also penalizes the intercept")
      + std::string{"; to exempt it, set optimizer.group { match: \""} + tensors[1].name
      + "\" weight_decay: 0 }";
  return result;
}

} // namespace troupe
