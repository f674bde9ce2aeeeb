#pragma once

#include <iostream>
#include <string_view>

namespace troupe::test {

/// How a test program ends where nothing failed and something was skipped: CTest reports that.
inline constexpr int exit_skipped = 77;

inline bool& anything_skipped() {
  static bool value = false;
  return value;
}

/// Says that what a test case needs is not here; the case then returns. Failures of others count
/// all the same.
inline void skip(std::string_view reason) {
  std::cout << "skipped: " << reason << '\n';
  anything_skipped() = true;
}

} // namespace troupe::test
