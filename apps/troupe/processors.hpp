#pragma once

#include <cstddef>
#include <vector>

namespace troupe {

/// The processors that this process may use, in ascending order.
std::vector<unsigned> allowed_processors();

/// Chooses a processor for each worker. The result is empty, so that the system chooses, in three
/// cases: there is a single worker; there are fewer processors than workers; there are at least
/// twice as many processors as workers.
std::vector<unsigned> processors_of(std::size_t workers, const std::vector<unsigned>& allowed);

/// From now on, the calling thread and the threads that it starts run on this processor only. A
/// thread that wakes up does not interrupt another thread that is running on this processor
/// (SCHED_BATCH). Otherwise, a worker would interrupt the parameter server that has just sent it
/// weights, and other workers would have to wait for that server. Throws std::system_error.
void bind_to(unsigned processor);

} // namespace troupe
