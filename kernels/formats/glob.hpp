#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// True if the whole `name` matches `pattern`: `*` matches any number of characters, including
/// none; `?` matches one character; other characters match themselves. The time is at most
/// proportional to the product of both lengths.
bool matches_glob(std::string_view pattern, std::string_view name) noexcept;

/// Number of characters in the pattern to insert, delete or replace so that it matches the name
/// (Levenshtein's distance, with `*` and `?` as above). Only the first 64 characters of both are
/// compared.
std::size_t glob_distance(std::string_view pattern, std::string_view name);

/// A text for an error message about a pattern that matches none of the names, like suggestion().
/// It suggests the nearest name if its distance is at most a third of the pattern's characters
/// (without `*` and `?`), or 1. It also lists the names.
std::string glob_suggestion(std::string_view pattern, std::span<const std::string> names);

} // namespace troupe
