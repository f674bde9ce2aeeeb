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

void record_queue::push(item x) {
  if (std::holds_alternative<record_weights>(x))
    remove_oldest<record_weights>();
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
