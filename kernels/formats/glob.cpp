#include "kernels/formats/glob.hpp"

#include "kernels/formats/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace troupe {

// If a character of the name does not match, the star that was passed last takes one more character
// of the name, and the comparison continues after the star. Earlier stars need not be tried again.
bool matches_glob(std::string_view pattern, std::string_view name) noexcept {
  constexpr auto none = std::string_view::npos;
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t after_star = none;
  std::size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != none) {
      p = after_star;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == none;
}

std::size_t glob_distance(std::string_view pattern, std::string_view name) {
  constexpr std::size_t most = 64;
  pattern = pattern.substr(0, most);
  name = name.substr(0, most);
  // row[i]: the distance between the processed part of the pattern and the first i characters of
  // the name.
  std::vector<std::size_t> row(name.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char c : pattern) {
    const auto above = row;
    const bool star = c == '*';
    row[0] += star ? 0 : 1;
    for (std::size_t i = 1; i < row.size(); ++i)
      row[i] = star ? std::min(above[i], row[i - 1])
                    : std::min({above[i] + 1, row[i - 1] + 1,
                                above[i - 1] + (c == '?' || c == name[i - 1] ? 0 : 1)});
  }
  return row.back();
}

std::string glob_suggestion(std::string_view pattern, std::span<const std::string> names) {
  const auto distance = [&](const std::string& name) { return glob_distance(pattern, name); };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  const auto letters = std::ranges::count_if(pattern, [](char c) { return c != '*' && c != '?'; });
  const auto near = std::max<std::size_t>(1, (static_cast<std::size_t>(letters) + 1) / 3);
  return suggestion(nearest != names.end() && distance(*nearest) <= near ? *nearest : pattern,
                    names);
}

} // namespace troupe
