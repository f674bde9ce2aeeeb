#include "actors/parameter_server/step_aggregator.hpp"

#include "kernels/cpu/reduce.hpp"

#include <utility>

namespace troupe {

step_aggregator::step_aggregator(std::size_t ranks, std::size_t elements)
  : parts_(ranks), elements_(elements) {}

bool step_aggregator::add(std::size_t rank, std::uint64_t samples, payload gradient) {
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
    if (!x.gradient.empty())
      result.push_back(x.gradient.as_floats());
  return result;
}

void step_aggregator::add_up(std::span<const std::span<const float>> terms) {
  sum_.resize(elements_);
  troupe::add(terms[0], terms[1], sum_);
  for (std::size_t i = 2; i < terms.size(); ++i)
    accumulate(sum_, terms[i]);
}

std::span<const float> step_aggregator::sum() {
  const auto terms = gradients();
  if (terms.size() == 1)
    return terms[0];
  if (std::exchange(added_up_, true))
    return sum_;
  if (terms.empty())
    sum_.assign(elements_, 0.0F);
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
