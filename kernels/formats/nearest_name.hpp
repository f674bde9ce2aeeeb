#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Number of single-character changes that turn `a` into `b`, ignoring case. A change is an
/// insertion, a deletion, a replacement or a swap of neighbours (optimal string alignment; Damerau
/// 1964). Only the first 64 characters of each word are compared.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance to `word`; the first one if several are equally
/// near. Empty if there are no candidates.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// Part of an error message for an unknown name: `did you mean "radio"? valid: "TV", "radio"`. It
/// lists at most 16 candidates. Empty if there are no candidates.
///
/// It suggests a candidate only if the candidate is similar to `word`. One case: the edit distance
/// is at most 1, or at most a third of the longer word. The other case: one of the words begins
/// with the other, and the shorter word has at least 3 characters.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

} // namespace troupe
