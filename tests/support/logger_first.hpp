#pragma once

#include <boost/test/unit_test.hpp>

#include <spdlog/spdlog.h>

namespace troupe::test {

/// A global fixture for tests that log from several threads. The packaged library of spdlog is not
/// built for ThreadSanitizer, which therefore does not see that only one thread creates the logger.
/// So the logger is created before there are other threads.
struct logger_first {
  logger_first() { spdlog::default_logger_raw(); }
};

} // namespace troupe::test
