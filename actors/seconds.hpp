#pragma once

#include <chrono>

namespace troupe {

inline double to_seconds(std::chrono::nanoseconds x) {
  return std::chrono::duration<double>(x).count();
}

} // namespace troupe
