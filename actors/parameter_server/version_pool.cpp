#include "actors/parameter_server/version_pool.hpp"

#include "messages/zero_pages.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_changes = 256;

} // namespace

version_pool::version_pool(std::size_t elements, std::size_t slots, bool lazily)
  : elements_(elements), count_(slots), slots_(std::make_unique<slot[]>(slots)) {
  assert(slots >= 2);
  for (std::size_t i = 0; i < count_; ++i) {
    slots_[i].data = lazily ? zero_floats(elements) : payload::floats(elements);
    if (!lazily)
      std::ranges::fill(slots_[i].data.as_mutable_floats(), 0.0F);
  }
  slots_[0].number = published_;
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
  slots_[next_].number = 0;
}

void version_pool::publish(std::uint64_t version) noexcept {
  changes_.clear();
  changed_ = 0;
  publish_next(version);
}

void version_pool::copy_newest() {
  auto& to = slots_[next_];
  const auto from = published();
  const auto out = to.data.as_mutable_floats();
  const auto missed = published_ - to.number;
  if (to.number == 0 || missed > changes_.size()) {
    std::ranges::copy(from, out.begin());
    return;
  }
  for (auto i = changes_.size() - missed; i < changes_.size(); ++i)
    for (const auto& x : changes_[i])
      std::ranges::copy(from.subspan(x.begin, x.size()), out.subspan(x.begin).begin());
}

void version_pool::publish_changes(std::uint64_t version, range_list changed) {
  changed_ += elements_of(changed);
  changes_.push_back(std::move(changed));
  while (changed_ > elements_ || changes_.size() > most_changes) {
    changed_ -= elements_of(changes_.front());
    changes_.pop_front();
  }
  publish_next(version);
}

void version_pool::publish_next(std::uint64_t version) noexcept {
  slots_[next_].version = version;
  slots_[next_].number = ++published_;
  version_.store(version, std::memory_order_release);
  current_.store(next_, std::memory_order_seq_cst);
}

} // namespace troupe
