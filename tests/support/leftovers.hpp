#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// Descriptors, threads and shared memory that a test program leaves behind, according to the
/// kernel. Construct it before the tests run; destroying it has no effect.
///
/// It allows what belongs to the process and not to a test: the shared memory of the process's pool
/// of buffers, and the driver of a GPU.
class leftovers {
public:
  leftovers();

  /// Call it after each test case: later reports then say after which case something was first
  /// seen.
  void note(const std::string& test_case);

  /// What is there now and was not at the beginning, such as "descriptor socket:[4711], first seen
  /// after suite/case". Waits a while for threads that are just ending.
  std::vector<std::string> found() const;

private:
  std::vector<std::string> before_;
  /// What was new, and the case after which it was first seen.
  std::vector<std::pair<std::string, std::string>> seen_;
};

} // namespace troupe::test
