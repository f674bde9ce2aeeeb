#pragma once

#include "messages/buffer.hpp"

#include <cstddef>

namespace troupe {

/// `count` float32 zeros, for large vectors of which only few parts are written. The system
/// provides a page of memory only when the page is first written. The memory is returned when the
/// last payload is gone. Throws std::bad_alloc.
payload zero_floats(std::size_t count);

} // namespace troupe
