#include "actors/parameter_server/step_aggregator.hpp"

#include "kernels/cpu/reduce.hpp"

#include <algorithm>
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

std::span<const float> step_aggregator::sum() {
  std::vector<std::span<const float>> terms;
  for (auto& x : parts_)
    if (!x.gradient.empty())
      terms.push_back(x.gradient.as_floats());
  if (terms.size() == 1)
    return terms[0];
  if (std::exchange(added_up_, true))
    return sum_;
  sum_.resize(elements_);
  if (terms.empty()) {
    std::ranges::fill(sum_, 0.0F);
    return sum_;
  }
  troupe::add(terms[0], terms[1], sum_);
  for (std::size_t i = 2; i < terms.size(); ++i)
    accumulate(sum_, terms[i]);
  return sum_;
}

void step_aggregator::clear() {
  for (auto& x : parts_)
    x = {};
  arrived_ = 0;
  samples_ = 0;
  added_up_ = false;
}

} // namespace troupe
