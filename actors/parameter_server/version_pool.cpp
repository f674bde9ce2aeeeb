#include "actors/parameter_server/version_pool.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

version_pool::version_pool(std::size_t elements, std::size_t slots)
  : elements_(elements), count_(slots), slots_(std::make_unique<slot[]>(slots)) {
  assert(slots >= 2);
  for (std::size_t i = 0; i < count_; ++i) {
    slots_[i].data = payload::floats(elements);
    std::ranges::fill(slots_[i].data.as_mutable_floats(), 0.0F);
  }
}

version_pool::snapshot version_pool::newest() const noexcept {
  // A reader protects a slot by a reference to its bytes. In a pool without elements, the slots
  // have no bytes. So the writer may reuse any slot at any time (begin()), and readers must not
  // access slots.
  if (elements_ == 0)
    return {version_.load(std::memory_order_acquire), {}};
  auto i = current_.load(std::memory_order_seq_cst);
  for (;;) {
    payload data = slots_[i].data;
    const auto again = current_.load(std::memory_order_seq_cst);
    // The slot is still the newest, and `data` now refers to it, so the writer does not overwrite
    // it.
    if (again == i)
      return {slots_[i].version, std::move(data)};
    i = again;
  }
}

std::span<const float> version_pool::published() const noexcept {
  return slots_[current_.load(std::memory_order_relaxed)].data.as_floats();
}

std::uint64_t version_pool::version() const noexcept {
  return version_.load(std::memory_order_relaxed);
}

bool version_pool::begin() noexcept {
  const auto current = current_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count_; ++i)
    if (i != current && (elements_ == 0 || slots_[i].data.unique())) {
      next_ = i;
      return true;
    }
  return false;
}

void version_pool::begin_always() {
  if (begin())
    return;
  next_ = current_.load(std::memory_order_relaxed) == 0 ? 1 : 0;
  slots_[next_].data = payload::floats(elements_);
}

void version_pool::publish(std::uint64_t version) noexcept {
  slots_[next_].version = version;
  version_.store(version, std::memory_order_release);
  current_.store(next_, std::memory_order_seq_cst);
}

} // namespace troupe
