#pragma once

#include <boost/test/unit_test.hpp>

namespace troupe::test {

/// A global fixture for tests that log from several threads. It creates spdlog's logger before
/// there are other threads. Otherwise, ThreadSanitizer would report a race: the packaged library is
/// not built for it, so it does not see that only one thread creates the logger.
struct logger_first {
  logger_first();
};

} // namespace troupe::test
