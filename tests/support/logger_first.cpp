#include "tests/support/logger_first.hpp"

#include <spdlog/spdlog.h>

namespace troupe::test {

// Compiled with the options of the packaged library: without them, this file would have a logger of
// its own.
logger_first::logger_first() {
  spdlog::default_logger_raw();
}

} // namespace troupe::test
