#include "tests/support/logger_first.hpp"

#include <spdlog/spdlog.h>

namespace troupe::test {

// This file is compiled with the options of the packaged spdlog library. With other options, there
// would be a second logger.
logger_first::logger_first() {
  spdlog::default_logger_raw();
}

} // namespace troupe::test
