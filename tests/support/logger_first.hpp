#pragma once

#include <boost/test/unit_test.hpp>

namespace troupe::test {

/// A global fixture for tests that log from several threads. It creates the logger before there are
/// other threads. The packaged library of spdlog is not built for ThreadSanitizer, which therefore
/// does not see that only one thread creates the logger, and would report a race.
struct logger_first {
  logger_first();
};

} // namespace troupe::test
