#pragma once

#include "kernels/error.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::test {

/// The text of the input_error that `body` throws, or "(no error)". Other exceptions are not
/// caught.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const input_error& e) {
    return e.what();
  }
  return "(no error)";
}

/// True if `text` contains `part`. If not, the test report shows both.
inline boost::test_tools::predicate_result contains(const std::string& text,
                                                    std::string_view part) {
  boost::test_tools::predicate_result result{text.find(part) != std::string::npos};
  if (!result)
    result.message() << "\"" << text << "\" does not contain \"" << part << "\"";
  return result;
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span{text.data(), text.size()});
  return {bytes.begin(), bytes.end()};
}

/// Calls `parse` with hostile variants of `good`: cut off at every length, and with every byte
/// replaced by some other bytes. `parse` may throw input_error; any other exception is a failure.
/// Each variant is in a heap block of its exact size, so that a sanitizer detects reads beyond its
/// end.
/// @return how many of the *cut-off* variants were accepted
template <class Parse>
std::size_t survive_hostile_variants(std::span<const std::byte> good, Parse&& parse) {
  std::size_t accepted = 0;
  const auto attempt = [&](const std::vector<std::byte>& bytes) {
    try {
      parse(std::span<const std::byte>{bytes});
      return true;
    } catch (const input_error&) {
      return false;
    }
  };
  for (std::size_t length = 0; length < good.size(); ++length)
    accepted += attempt({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}) ? 1 : 0;
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xff, 0x20, 0x10}) {
      std::vector<std::byte> changed{good.begin(), good.end()};
      changed[i] ^= static_cast<std::byte>(flip);
      attempt(changed);
    }
  return accepted;
}

} // namespace troupe::test
