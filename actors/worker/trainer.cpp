#include "actors/worker/trainer.hpp"

#include "kernels/optimizers/gradient_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

const std::int32_t* integers(const payload& data) {
  return reinterpret_cast<const std::int32_t*>(data.data());
}

feed<float> fed(const payload& data, bool as_integers) {
  return as_integers ? feed<float>{integers(data)} : feed<float>{data.as_floats().data()};
}

feed<float> fed_features(const batch_read& x, feature_kind kind) {
  if (kind == feature_kind::sparse)
    return sparse_rows<float>{integers(x.row_starts), integers(x.columns),
                              x.features.as_floats().data()};
  return fed(x.features, kind == feature_kind::tokens);
}

} // namespace

weight_binding::weight_binding(const layout& parameters)
  : parameters_(&parameters), pointers_(parameters.entries().size()),
    gathered_(parameters.entries().size()) {}

std::span<const float* const> weight_binding::bind(std::span<const weight_range> ranges) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < pointers_.size(); ++i) {
    const auto tensor = parameters_->entries()[i].elements();
    const auto end_of = [&](const weight_range& r) { return r.begin + r.data.as_floats().size(); };
    while (first + 1 < ranges.size() && end_of(ranges[first]) <= tensor.begin)
      ++first;
    const auto& r = ranges[first];
    if (tensor.end <= end_of(r)) {
      pointers_[i] = r.data.as_floats().data() + (tensor.begin - r.begin);
      continue;
    }
    if (gathered_[i].empty())
      gathered_[i] = payload::floats(tensor.size());
    auto out = gathered_[i].as_mutable_floats();
    for (std::size_t k = first; k < ranges.size() && ranges[k].begin < tensor.end; ++k) {
      const auto part = intersect(tensor, range{ranges[k].begin, end_of(ranges[k])});
      const auto source =
        ranges[k].data.as_floats().subspan(part.begin - ranges[k].begin, part.size());
      std::ranges::copy(source,
                        out.begin() + static_cast<std::ptrdiff_t>(part.begin - tensor.begin));
    }
    pointers_[i] = out.data();
  }
  return pointers_;
}

trainer::trainer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                 synchronizer_actor synchronizer, trainer_listener listener)
  : super(cfg), context_(std::move(context)), synchronizer_(std::move(synchronizer)),
    listener_(std::move(listener)),
    executor_(context_->training, context_->job.runtime().threads()),
    binding_(context_->parameters()) {}

trainer::behavior_type trainer::make_behavior() {
  return {[this](const train_batch& x) { on_train(x); }};
}

void trainer::on_train(const train_batch& x) {
  const auto& plan = *context_->training;
  const auto& buckets = plan.buckets();
  payload gradient = payload::floats(plan.parameters().size());
  batch_trained done;
  done.step = x.step;
  done.samples = x.batch.rows;
  const auto hand_over = [&](std::size_t bucket) {
    const auto where = buckets[bucket].elements;
    send(synchronizer_, contribute{x.step, where.begin, where.end, x.batch.rows, gradient});
  };
  const auto on_bucket = [&](std::size_t bucket) {
    const auto where = buckets[bucket].elements;
    // Here, because the bucket is in the cache.
    done.squared_norm += squared_norm(context_->parameters(), where,
                                      gradient.as_floats().subspan(where.begin, where.size()));
    // The last one waits for the loss.
    if (bucket + 1 < buckets.size())
      hand_over(bucket);
  };
  const std::array feeds{fed_features(x.batch, context_->data.features),
                         fed(x.batch.labels, context_->data.labels == label_kind::classes)};
  run_arguments<float> arguments;
  arguments.rows = x.batch.rows;
  arguments.seed = x.batch.seed;
  arguments.weights = binding_.bind(x.weights);
  arguments.feeds = feeds;
  arguments.gradient = gradient.as_mutable_floats();
  arguments.on_bucket = on_bucket;
  done.loss_sum = executor_.run(arguments).loss;
  if (!std::isfinite(done.loss_sum) || !std::isfinite(done.squared_norm))
    explain(done, arguments, gradient);
  if (!std::isfinite(done.loss_sum)) {
    done.squared_norm = std::numeric_limits<double>::quiet_NaN();
    gradient.as_mutable_floats()[buckets.back().elements.begin] =
      std::numeric_limits<float>::quiet_NaN();
  }
  hand_over(buckets.size() - 1);
  send(listener_, std::move(done));
}

// The gradient of the first run is lent: a second one computes another.
void trainer::explain(batch_trained& x, run_arguments<float> arguments, const payload& gradient) {
  if (std::isfinite(x.loss_sum)) {
    const auto& parameters = context_->parameters();
    x.not_finite = "the gradient of "
      + first_not_finite(parameters, {0, parameters.size()}, gradient.as_floats());
    return;
  }
  auto spare = payload::floats(context_->parameters().size());
  arguments.gradient = spare.as_mutable_floats();
  arguments.on_bucket = {};
  x.not_finite = executor_.find_not_finite(arguments);
}

} // namespace troupe
