#include "apps/troupe/processors.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include <sched.h>

namespace troupe {

std::vector<unsigned> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> result;
  // The call fails if the machine has more processors than fit in a cpu_set_t.
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (unsigned i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set))
        result.push_back(i);
  return result;
}

std::vector<unsigned> processors_of(std::size_t workers, const std::vector<unsigned>& allowed) {
  if (workers < 2 || workers > allowed.size() || 2 * workers <= allowed.size())
    return {};
  return {allowed.begin(), allowed.begin() + static_cast<std::ptrdiff_t>(workers)};
}

void bind_to(unsigned processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (processor < CPU_SETSIZE)
    CPU_SET(processor, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    throw std::system_error{errno, std::generic_category(),
                            "cannot run on processor " + std::to_string(processor) + " only"};
  // Errors are ignored, because SCHED_BATCH only makes training a little faster.
  const sched_param none{};
  if (::sched_getscheduler(0) == SCHED_OTHER)
    ::sched_setscheduler(0, SCHED_BATCH, &none);
}

} // namespace troupe
