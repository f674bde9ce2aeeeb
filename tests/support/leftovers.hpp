#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// Finds descriptors, threads and shared memory that a test program leaves behind, according to the
/// kernel. Construct an object before the tests run. Its destructor does nothing.
///
/// It ignores the shared memory of the process's buffer pool, which belongs to the process and not
/// to a test. If a GPU driver is loaded, it finds nothing, because the driver keeps threads and
/// descriptors.
class leftovers {
public:
  leftovers();

  /// Call this after each test case. So found() can say after which case something was first seen.
  void note(const std::string& test_case);

  /// Everything that exists now but did not exist at the beginning, such as "descriptor
  /// socket:[4711], first seen after suite/case". Waits a while for threads that are ending.
  std::vector<std::string> found() const;

private:
  std::vector<std::string> before_;
  /// Each new thing, and the case after which it was first seen.
  std::vector<std::pair<std::string, std::string>> seen_;
};

} // namespace troupe::test
