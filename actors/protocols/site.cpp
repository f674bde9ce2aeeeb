#include "actors/protocols/site.hpp"

#include <algorithm>

namespace troupe {

std::vector<counted_worker> workers_of(const view& members) {
  std::vector<counted_worker> result;
  for (auto& x : members.of(job_kind::worker))
    result.push_back({x.task.index, x.incarnation});
  return result;
}

std::size_t worker_site::rank() const {
  const auto workers = view.of(job_kind::worker);
  return static_cast<std::size_t>(std::ranges::find(workers, task, &member::task)
                                  - workers.begin());
}

member worker_site::left() const {
  const auto workers = view.of(job_kind::worker);
  return workers[(rank() + workers.size() - 1) % workers.size()];
}

} // namespace troupe
