#pragma once

#include "tests/kernels/cuda/simulated_device.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <cstdlib>
#include <optional>

namespace troupe::test {

/// The number of stream orders in which each test runs: TROUPE_STREAM_ORDERS, or 2 if it is not
/// set.
inline std::uint64_t stream_orders() {
  const char* const text = std::getenv("TROUPE_STREAM_ORDERS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 2;
}

/// Calls f without a seed for the streams (see simulated_device), and then with each seed.
template <class F>
void with_all_orders(F f) {
  f(std::optional<std::uint64_t>{});
  for (std::uint64_t seed = 0; seed < stream_orders(); ++seed)
    BOOST_TEST_CONTEXT("streams in order " << seed) {
      f(std::optional{seed});
    }
}

/// Calls f with a device for each of the orders of with_all_orders().
template <class F>
void with_all_devices(F f) {
  with_all_orders([&](std::optional<std::uint64_t> seed) {
    simulated_device gpu{seed};
    f(gpu);
  });
}

} // namespace troupe::test
