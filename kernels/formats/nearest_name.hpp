#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Number of single-character insertions, deletions, replacements and swaps of neighbours that turn
/// `a` into `b`, ignoring case (optimal string alignment; Damerau 1964). Words beyond 64 characters
/// are compared by their first 64.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance to `word`; the first one if several are equally
/// near. Empty if there are no candidates.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// For error messages: `did you mean "radio"? valid: "TV", "radio"`. It suggests a candidate only
/// if it is similar: the edit distance is at most a third of the longer word (or 1), or one of the
/// words begins with the other, which has at least 3 characters. It lists at most 16 candidates.
/// Empty without candidates.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

} // namespace troupe
