#include "actors/protocols/site.hpp"

#include <algorithm>

namespace troupe {

std::size_t worker_site::rank() const {
  const auto workers = view.of(job_kind::worker);
  return static_cast<std::size_t>(std::ranges::find(workers, task, &member::task)
                                  - workers.begin());
}

} // namespace troupe
