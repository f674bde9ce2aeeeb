#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace troupe {

/// Appends formatted text to `out`.
template <class... Args>
void print_to(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

} // namespace troupe
