#include "actors/model/text_generator.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/error.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

namespace troupe {

std::shared_ptr<const plan> text_generator::plan_of(const job_context& context,
                                                    const fusion_table& fusion) {
  const auto& data = context.data;
  if (data.features != feature_kind::tokens || data.labels_per_record != data.feature_width()
      || context.job.model().loss() != proto::SOFTMAX_CROSS_ENTROPY)
    throw input_error("only a model that predicts the next character at each position (data.text, "
                      "SOFTMAX_CROSS_ENTROPY) can generate text, but the records here are "
                      + to_string(static_cast<const record_shape&>(data)));
  plan_options options;
  options.fusion = &fusion;
  options.max_rows = 1;
  options.fetches = {context.model.output};
  return std::make_shared<plan>(*context.model.graph, options);
}

std::int32_t draw_token(std::span<const float> logits, double temperature, double uniform) {
  const auto best = std::ranges::max_element(logits);
  if (temperature == 0)
    return static_cast<std::int32_t>(best - logits.begin());
  const auto weight = [&](float x) {
    return std::exp((static_cast<double>(x) - static_cast<double>(*best)) / temperature);
  };
  double total = 0;
  for (const float x : logits)
    total += weight(x);
  double left = uniform * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    left -= weight(logits[i]);
    if (left < 0)
      return static_cast<std::int32_t>(i);
  }
  // The loop ends without a token because of rounding, or if a logit is NaN. The token with the
  // largest logit is then taken.
  return static_cast<std::int32_t>(best - logits.begin());
}

text_generator::text_generator(const job_context& context)
  : text_generator(
    context, make_cpu_executor(plan_of(context, cpu_fusion()), context.job.runtime().threads())) {}

text_generator::text_generator(const job_context& context, std::unique_ptr<device_executor> on)
  : record_(context.data), executor_(std::move(on)),
    pointers_(context.parameters().entries().size()) {}

std::vector<std::int32_t> text_generator::run(std::span<const float> weights,
                                              std::span<const std::int32_t> prompt,
                                              const options& how) {
  const auto& entries = executor_->what().parameters().entries();
  for (std::size_t i = 0; i < pointers_.size(); ++i)
    pointers_[i] = weights.data() + entries[i].offset;
  new_weights_ = true;
  refuse_to_look_ahead(prompt);
  random_stream stream{how.seed, "text"};
  std::vector<std::int32_t> text{prompt.begin(), prompt.end()};
  for (std::size_t i = 0; i < how.count; ++i)
    text.push_back(draw_token(logits_after(text), how.temperature, stream.uniform()));
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

void text_generator::refuse_to_look_ahead(std::span<const std::int32_t> prompt) {
  const auto text = prompt.first(std::min(prompt.size(), record_.feature_width() - 1));
  if (text.empty())
    return;
  const auto before = logits_after(text);
  const std::vector<float> expected{before.begin(), before.end()};
  const auto found = logits_after(text, static_cast<std::int32_t>(record_.vocabulary) - 1);
  const auto same = [](float a, float b) { return a == b || (a != a && b != b); };
  if (!std::ranges::equal(found, expected, same))
    throw input_error("the model looks ahead: its prediction for a position depends on later "
                      "characters, so it cannot generate text; train a model with causal attention "
                      "and recurrent layers in one direction");
}

std::span<const float> text_generator::logits_after(std::span<const std::int32_t> text,
                                                    std::int32_t later) {
  const auto window = record_.feature_width();
  const auto used = std::min(window, text.size());
  std::vector<std::int32_t> tokens(window, later);
  std::ranges::copy(text.last(used), tokens.begin());
  const std::array<feed<float>, 2> feeds{feed<float>{tokens.data()}, {}};
  run_arguments<float> arguments;
  arguments.rows = 1;
  if (std::exchange(new_weights_, false) || !executor_->keeps_weights())
    arguments.weights = pointers_;
  arguments.feeds = feeds;
  executor_->advance(arguments).value();
  const auto logits = executor_->fetched(0);
  const auto units = logits.size() / window;
  // A model may have more units than the data has characters. Only the logits of characters are
  // returned.
  return logits.subspan((used - 1) * units, record_.vocabulary);
}

} // namespace troupe
