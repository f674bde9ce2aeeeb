#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// True if the whole `name` matches `pattern`: `*` stands for any number of characters, including
/// none, `?` for one, and other characters for themselves. Takes time in proportion to at most the
/// product of both lengths.
bool matches_glob(std::string_view pattern, std::string_view name) noexcept;

/// Number of characters in the pattern to insert, delete or replace so that it matches the name
/// (Levenshtein's distance, with `*` and `?` as above). Only the first 64 characters of both are
/// compared.
std::size_t glob_distance(std::string_view pattern, std::string_view name);

/// For error messages, like suggestion(): the likely meaning of a pattern without a match (up to a
/// third of its characters may differ), and the names.
std::string glob_suggestion(std::string_view pattern, std::span<const std::string> names);

} // namespace troupe
