#pragma once

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace troupe {

/// A check for an option: accepts a number from `low` to `high`, and refuses NaN.
inline CLI::Validator within(double low, double high) {
  return {[low, high](const std::string& text) {
            char* end = nullptr;
            const double x = std::strtod(text.c_str(), &end);
            return x >= low && x <= high && *end == '\0'
              ? std::string{}
              : fmt::format("expected a number from {:g} to {:g}, got {}", low, high, text);
          },
          ""};
}

} // namespace troupe
