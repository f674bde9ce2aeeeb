#pragma once

#include <iostream>
#include <string_view>

namespace troupe::test {

/// The exit code of a test program if nothing failed and something was skipped. CTest then reports
/// the program as skipped.
inline constexpr int exit_skipped = 77;

inline bool& anything_skipped() {
  static bool value = false;
  return value;
}

/// Reports that a precondition of a test case is missing. The case must then return. Failures of
/// other cases still count.
inline void skip(std::string_view reason) {
  std::cout << "skipped: " << reason << '\n';
  anything_skipped() = true;
}

} // namespace troupe::test
