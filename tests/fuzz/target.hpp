#pragma once

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::fuzz {

/// Handles one input. It may throw the exceptions that are meant for users; the caller catches
/// them. Any other failure ends the process.
using target_function = void (*)(std::span<const std::byte> input);

struct target {
  std::string name;
  target_function run;
};

/// The targets of this program. A fuzzer has one. The test that runs stored inputs has all.
std::vector<target>& targets();

/// Runs a target on an exact copy of the input on the heap, so that a sanitizer detects reads
/// beyond its end.
void run(const target& what, std::span<const std::byte> input);

struct registration {
  registration(std::string name, target_function run);
};

/// Ends the process if `ok` is false: the target has broken a rule.
inline void require(bool ok, std::string_view rule) {
  if (ok)
    return;
  std::cerr << "broken: " << rule << '\n';
  std::abort();
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace troupe::fuzz

/// Defines the target with this name. Its inputs are in corpus/NAME.
#define TROUPE_FUZZ_TARGET(name, input)                                                            \
  static void fuzz_##name(std::span<const std::byte>);                                             \
  static const troupe::fuzz::registration registered_##name{#name, fuzz_##name};                   \
  static void fuzz_##name(std::span<const std::byte> input)
