#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Whether `name` as a whole is as `pattern` says: `*` stands for any characters, also none, `?`
/// for one; others stand for themselves. Time: the product of both lengths at most.
bool matches_glob(std::string_view pattern, std::string_view name) noexcept;

/// Characters of the pattern to insert, delete or replace so that it matches the name
/// (Levenshtein's distance, with `*` and `?` as above). Of both, the first 64 count.
std::size_t glob_distance(std::string_view pattern, std::string_view name);

/// For error messages, as suggestion(): what a pattern that matches none of the names may have
/// meant (up to a third of its characters differ), and the names.
std::string glob_suggestion(std::string_view pattern, std::span<const std::string> names);

} // namespace troupe
