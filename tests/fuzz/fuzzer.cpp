#include "tests/fuzz/target.hpp"

#include <cstdint>

/// The function that libFuzzer calls.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::fuzz::run(troupe::fuzz::targets().at(0), std::as_bytes(std::span{data, size}));
  return 0;
}
