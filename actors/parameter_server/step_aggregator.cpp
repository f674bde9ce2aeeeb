#include "actors/parameter_server/step_aggregator.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

step_aggregator::step_aggregator(std::size_t ranks, std::size_t elements)
  : parts_(ranks), elements_(elements) {}

bool step_aggregator::add(std::size_t rank, std::uint64_t samples, shard_gradient gradient) {
  auto& x = parts_.at(rank);
  if (x.present)
    return false;
  x.present = true;
  x.samples = samples;
  x.gradient = std::move(gradient);
  samples_ += samples;
  ++arrived_;
  return true;
}

void step_aggregator::remove(std::size_t rank) {
  auto& x = parts_.at(rank);
  arrived_ -= x.present ? 1 : 0;
  samples_ -= x.samples;
  x = {};
  added_up_ = false;
}

std::vector<std::span<const float>> step_aggregator::gradients() const {
  std::vector<std::span<const float>> result;
  for (auto& x : parts_)
    if (!x.gradient.values.empty())
      result.push_back(x.gradient.values.as_floats());
  return result;
}

std::shared_ptr<const range_list> step_aggregator::touched() const {
  std::shared_ptr<const range_list> result;
  for (auto& x : parts_) {
    if (x.gradient.values.empty())
      continue;
    if (!x.gradient.touched)
      return nullptr;
    result = result ? std::make_shared<range_list>(unite(*result, *x.gradient.touched))
                    : x.gradient.touched;
  }
  return result;
}

/// Sets the sum of an earlier step to 0, where it was written.
void step_aggregator::clear_sum() {
  sum_.resize(elements_);
  for (const auto& x : written_ ? *written_ : range_list{{0, elements_}})
    std::ranges::fill(std::span{sum_}.subspan(x.begin, x.size()), 0.0F);
  written_ = std::make_shared<const range_list>();
}

void step_aggregator::add_up(std::span<const std::span<const float>> terms) {
  const auto some = touched();
  if (some)
    clear_sum();
  sum_.resize(elements_);
  for (const auto& x : some ? *some : range_list{{0, elements_}}) {
    const auto out = std::span{sum_}.subspan(x.begin, x.size());
    const auto part = [&](std::size_t i) { return terms[i].subspan(x.begin, x.size()); };
    troupe::add(part(0), part(1), out);
    for (std::size_t i = 2; i < terms.size(); ++i)
      accumulate(out, part(i));
  }
  written_ = some;
}

std::span<const float> step_aggregator::sum() {
  const auto terms = gradients();
  if (terms.size() == 1)
    return terms[0];
  if (std::exchange(added_up_, true))
    return sum_;
  if (terms.empty())
    clear_sum();
  else
    add_up(terms);
  return sum_;
}

step_aggregator::two_terms step_aggregator::terms() {
  const auto all = gradients();
  if (all.size() < 2 || added_up_)
    return {sum(), {}};
  const auto first = std::span{all}.first(all.size() - 1);
  if (first.size() == 1)
    return {first[0], all.back()};
  add_up(first);
  return {sum_, all.back()};
}

void step_aggregator::clear() {
  for (auto& x : parts_)
    x = {};
  arrived_ = 0;
  samples_ = 0;
  added_up_ = false;
}

} // namespace troupe
