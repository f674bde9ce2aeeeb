#include "actors/parameter_server/live_weights.hpp"

#include "kernels/relaxed_floats.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

live_weights::live_weights(const job_context& context, range where)
  : where_(where), values_(where.size()) {
  context.initialize(where, values_);
}

void live_weights::restore(std::span<const float> weights, std::uint64_t samples,
                           std::uint64_t updates) {
  std::ranges::copy(weights, values_.begin());
  samples_ = samples;
  updates_ = updates;
}

void live_weights::read(std::span<float> out) noexcept {
  relaxed_copy(values_, out);
}

payload live_weights::copy() {
  auto result = payload::floats(values_.size());
  read(result.as_mutable_floats());
  return result;
}

live_writer::live_writer(const job_context& context, std::shared_ptr<live_weights> weights)
  : weights_(std::move(weights)) {
  const auto [begin, end] = weights_->where();
  for (auto at = begin; at < end; at += block)
    updaters_.emplace_back(context, range{at, std::min(at + block, end)});
}

void live_writer::update(std::span<const float> gradient, std::uint64_t samples, double factor,
                         std::span<float> newest) {
  const auto samples_before = weights_->samples_.fetch_add(samples, std::memory_order_relaxed);
  std::array<float, block> values;
  for (std::size_t i = 0; i < updaters_.size(); ++i) {
    const auto begin = i * block;
    const auto size = std::min(block, gradient.size() - begin);
    const auto shared = std::span{weights_->values_}.subspan(begin, size);
    const auto before = std::span{values}.first(size);
    const auto after = newest.subspan(begin, size);
    relaxed_copy(shared, before);
    updaters_[i].restore(samples_before, 0);
    updaters_[i].apply(before, gradient.subspan(begin, size), samples, after, factor);
    relaxed_move(shared, before, after);
  }
  weights_->updates_.fetch_add(1, std::memory_order_relaxed);
}

} // namespace troupe
