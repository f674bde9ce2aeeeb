#pragma once

#include <cstddef>
#include <vector>

namespace troupe {

/// The processors that this process may use, in ascending order.
std::vector<unsigned> allowed_processors();

/// A processor for each worker, if there are at least as many processors as workers, but fewer than
/// twice as many. Otherwise, and for a single worker, the result is empty: the system then chooses.
std::vector<unsigned> processors_of(std::size_t workers, const std::vector<unsigned>& allowed);

/// From now on, the calling thread and the threads that it starts run on this processor only. When
/// they wake, they do not interrupt another thread that is running on it (SCHED_BATCH). Otherwise,
/// a worker would interrupt the parameter server that has just sent it weights, and other workers
/// would have to wait for that server. Throws std::system_error.
void bind_to(unsigned processor);

} // namespace troupe
