#pragma once

#include "kernels/cuda/kernel.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>

namespace troupe::test {

/// The text of the error when `f` is launched, or "(no error)".
template <class F>
std::string fault_of(F f, std::size_t blocks = 1, std::size_t shared_bytes = 0) {
  try {
    cuda::launch({}, "faulty", {blocks, shared_bytes}, f);
  } catch (const simulation_error& e) {
    return e.what();
  }
  return "(no error)";
}

inline bool contains(const std::string& text, const char* part) {
  BOOST_TEST_CONTEXT(text << " should contain " << part)
  BOOST_TEST((text.find(part) != std::string::npos));
  return text.find(part) != std::string::npos;
}

} // namespace troupe::test
