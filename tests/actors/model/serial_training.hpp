#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/model_builder.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/data/permutation.hpp"
#include "kernels/optimizers/gradient_norm.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::test {

/// Trains a job in a plain loop without actors, and tests the result. If an example job states a
/// result, this loop must reach it.
class serial_training {
public:
  explicit serial_training(const proto::Job& job)
    : job_(job), data_(build_data(job)), model_(build_model(job.model(), data_.train->record())) {
    auto options = cpu_plan_options();
    options.max_rows = job.data().batch();
    options.loss = model_.training_loss;
    options.correct = model_.correct;
    options.gradients = true;
    executor_ =
      std::make_unique<executor<float>>(std::make_shared<const plan>(*model_.graph, options));
    const auto& layout = model_.graph->parameters();
    weights_.resize(layout.size());
    gradient_.resize(layout.size());
    initialize(layout, {0, layout.size()}, job.seed(), weights_);
  }

  void train() {
    const auto rule = build_optimizer(job_.optimizer());
    const auto groups = build_groups(job_.optimizer(), model_.graph->parameters());
    const auto rate = build_learning_rate(job_);
    const std::uint64_t size = data_.train->size();
    std::vector<float> state(rule.slots() * weights_.size());
    const auto& layout = model_.graph->parameters();
    std::uint64_t step = 0;
    for (std::uint64_t done = 0; done < size * job_.epochs();) {
      const std::uint64_t first = done % size;
      const permutation order{size, job_.seed(), done / size};
      std::vector<std::uint64_t> records(
        std::min<std::uint64_t>(job_.data().batch(), size - first));
      order.fill(first, records);
      run(*data_.train, records);
      done += records.size();
      const double middle = static_cast<double>(done) - static_cast<double>(records.size()) / 2;
      const double progress = middle / static_cast<double>(size);
      const double mean = 1.0 / static_cast<double>(records.size());
      const double norm = std::sqrt(squared_norm(layout, {0, weights_.size()}, gradient_)) * mean;
      const double scale = mean * clip_factor(rule.clip_norm, norm);
      ++step;
      // Updates one tensor at a time. Updating longer ranges would give the same bits.
      for (std::size_t i = 0; i < layout.entries().size(); ++i) {
        const auto& tensor = layout.entries()[i];
        if (tensor.kind == parameter_kind::frozen)
          continue;
        const auto cut = [&](std::vector<float>& x) {
          return std::span{x}.subspan(tensor.offset, tensor.size);
        };
        if (tensor.kind == parameter_kind::state) {
          update_statistics(cut(weights_), cut(gradient_), mean, tensor.decay, cut(weights_));
          continue;
        }
        const auto own = rule.slots() == 0
          ? std::span<float>{}
          : std::span{state}.subspan(tensor.offset,
                                     (rule.slots() - 1) * weights_.size() + tensor.size);
        const auto& how = groups.rules[groups.of_tensor[i]];
        update<float>(how.rule,
                      {cut(weights_), cut(gradient_), own, cut(weights_),
                       rate.at(progress) * how.rate_scale, scale, step, weights_.size()});
      }
    }
  }

  /// The weights of all tensors as one vector.
  const std::vector<float>& weights() const noexcept { return weights_; }

  /// Fraction of the test records that are classified correctly.
  double accuracy() {
    std::size_t correct = 0;
    for (std::uint64_t i = 0; i < data_.test->size(); ++i)
      correct += run(*data_.test, {i}).correct;
    return static_cast<double>(correct) / static_cast<double>(data_.test->size());
  }

  std::vector<double> coefficients() const {
    const auto& layout = model_.graph->parameters();
    const auto slice = [&](const layout_entry& entry) {
      return std::span<const float>{weights_}.subspan(entry.offset, entry.size);
    };
    return linear_coefficients(slice(layout.entries().at(0)), slice(layout.entries().at(1)),
                               data_.scaling.value());
  }

private:
  run_result run(const dataset& data, const std::vector<std::uint64_t>& records) {
    std::vector<float> features(records.size() * data.record().feature_width());
    const bool classes = data.record().labels == label_kind::classes;
    std::vector<std::int32_t> labels(classes ? records.size() : 0);
    std::vector<float> targets(classes ? 0 : records.size() * data.record().label_width);
    data.read(records, std::span<float>{features}, {labels, targets});
    std::vector<const float*> tensors;
    for (const auto& entry : model_.graph->parameters().entries())
      tensors.push_back(weights_.data() + entry.offset);
    const std::vector<feed<float>> feeds{
      features.data(), classes ? feed<float>{labels.data()} : feed<float>{targets.data()}};
    run_arguments<float> arguments;
    arguments.rows = records.size();
    arguments.weights = tensors;
    arguments.feeds = feeds;
    arguments.gradient = gradient_;
    return executor_->run(arguments);
  }

  proto::Job job_;
  job_data data_;
  built_model model_;
  std::unique_ptr<executor<float>> executor_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
};

} // namespace troupe::test
