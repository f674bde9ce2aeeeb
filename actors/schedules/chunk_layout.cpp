#include "actors/schedules/chunk_layout.hpp"

#include <algorithm>

namespace troupe {

chunk_layout::chunk_layout(std::size_t elements, std::size_t ranks, std::size_t chunk_elements)
  : segments_(split_evenly(elements, ranks)), first_{0}, chunk_elements_(chunk_elements) {
  for (std::size_t s = 0; s < ranks; ++s)
    first_.push_back(first_.back() + chunks(s));
}

std::uint32_t chunk_layout::chunks(std::size_t segment) const noexcept {
  const auto n = segments_[segment].size();
  const auto count = n / chunk_elements_ + (n % chunk_elements_ == 0 ? 0 : 1);
  return static_cast<std::uint32_t>(segment == 0 ? std::max<std::size_t>(count, 1) : count);
}

range chunk_layout::where(std::size_t segment, std::uint32_t chunk) const noexcept {
  const auto& s = segments_[segment];
  const auto begin = s.begin + chunk * chunk_elements_;
  return {begin, begin + std::min(chunk_elements_, s.end - begin)};
}

} // namespace troupe
