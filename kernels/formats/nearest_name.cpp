#include "kernels/formats/nearest_name.hpp"

#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace troupe {

namespace {

constexpr std::size_t max_word = 64;
constexpr std::size_t max_listed = 16;
constexpr std::size_t longest_shown = 60;

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view start) noexcept {
  return start.size() >= 3 && text.size() >= start.size()
    && std::ranges::equal(text.substr(0, start.size()), start,
                          [](char a, char b) { return lower(a) == lower(b); });
}

/// The candidate to suggest, or an empty text if no candidate is similar enough. A candidate is
/// similar if it differs from `word` in only a few letters, or if one of the two words begins with
/// the other.
std::string near_name(std::string_view word, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(word, candidates);
  const std::size_t longer = std::max(word.size(), nearest.size());
  if (edit_distance(word, nearest) <= std::max<std::size_t>(1, longer / 3))
    return nearest;
  const auto begins = std::ranges::find_if(candidates, [&](const std::string& candidate) {
    return starts_with_ignoring_case(candidate, word) || starts_with_ignoring_case(word, candidate);
  });
  return begins != candidates.end() ? *begins : std::string{};
}

} // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, max_word);
  b = b.substr(0, max_word);
  using row = std::array<std::size_t, max_word + 1>;
  row two_up{};
  row above{};
  row here{};
  for (std::size_t j = 0; j <= b.size(); ++j)
    here[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_up = above;
    above = here;
    here[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      here[j] = std::min({above[j] + 1, here[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2])
          && lower(a[i - 2]) == lower(b[j - 1]))
        here[j] = std::min(here[j], two_up[j - 2] + 1);
    }
  }
  return here[b.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best != nullptr ? *best : std::string{};
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  if (candidates.empty())
    return {};
  std::string result;
  const std::string near = near_name(word, candidates);
  if (!near.empty())
    result = "did you mean \"" + excerpt(near, longest_shown) + "\"? ";
  result += "valid: ";
  for (std::size_t i = 0; i < std::min(candidates.size(), max_listed); ++i)
    result += (i > 0 ? ", \"" : "\"") + excerpt(candidates[i], longest_shown) + "\"";
  if (candidates.size() > max_listed)
    result += " and " + std::to_string(candidates.size() - max_listed) + " more";
  return result;
}

} // namespace troupe
