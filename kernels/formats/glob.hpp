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

/// How much a pattern must be changed so that it matches the name: the number of characters to
/// insert, delete or replace (Levenshtein's distance; `*` and `?` have the same meaning as in
/// matches_glob). Only the first 64 characters of both texts are compared.
std::size_t glob_distance(std::string_view pattern, std::string_view name);

/// Part of an error message for a pattern that matches none of the names. It lists the names, like
/// suggestion(). It also suggests the nearest name if its distance is at most 1, or at most a third
/// (rounded to the nearest integer) of the pattern's characters without `*` and `?`.
std::string glob_suggestion(std::string_view pattern, std::span<const std::string> names);

} // namespace troupe
