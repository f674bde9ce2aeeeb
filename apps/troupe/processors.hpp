#pragma once

#include <cstddef>
#include <vector>

namespace troupe {

/// The processors that this process may use, in ascending order.
std::vector<unsigned> allowed_processors();

/// The processor for each of these workers, if every one gets a processor of its own and there are
/// none to spare for a second one each. Otherwise nothing: the system then finds a processor.
std::vector<unsigned> processors_of(std::size_t workers, const std::vector<unsigned>& allowed);

/// From now on, the calling thread and the threads that it starts run on this processor only.
/// Throws std::system_error.
void bind_to(unsigned processor);

} // namespace troupe
