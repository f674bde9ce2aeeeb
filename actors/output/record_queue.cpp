#include "actors/output/record_queue.hpp"

#include <algorithm>

namespace troupe {

template <class T>
bool record_queue::remove_oldest() {
  const auto i = std::ranges::find_if(items_, [](auto& x) { return std::holds_alternative<T>(x); });
  if (i == items_.end())
    return false;
  items_.erase(i);
  return true;
}

void record_queue::remove_older(const record_weights& x) {
  std::erase_if(items_, [&](auto& y) {
    const auto* older = std::get_if<record_weights>(&y);
    return older != nullptr && older->best.has_value() == x.best.has_value();
  });
}

void record_queue::push(item x) {
  if (const auto* weights = std::get_if<record_weights>(&x))
    remove_older(*weights);
  items_.push_back(std::move(x));
  if (items_.size() <= most_ || remove_oldest<run_progress>())
    return;
  left_out_ += remove_oldest<run_notice>() || remove_oldest<epoch_report>() ? 1 : 0;
}

std::optional<record_queue::item> record_queue::pop() {
  if (items_.empty())
    return std::nullopt;
  auto result = std::move(items_.front());
  items_.pop_front();
  return result;
}

} // namespace troupe
