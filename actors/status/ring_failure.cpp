#include "actors/status/ring_failure.hpp"

namespace troupe {

std::string to_string(const ring_failure& x) {
  const auto head = "rank " + std::to_string(x.rank) + " of " + std::to_string(x.ranks)
    + " lost rank " + std::to_string(x.lost_rank) + " (" + to_string(x.lost) + ") in step "
    + std::to_string(x.step);
  if (!x.bucket)
    return head + ", while it waited for no other rank";
  return head + "; it has waited for bucket " + std::to_string(*x.bucket) + " for "
    + std::to_string(x.waited.count()) + " ms";
}

} // namespace troupe
