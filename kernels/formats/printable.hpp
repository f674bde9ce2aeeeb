#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Makes a text from a file or another process safe for a terminal: control characters, and bytes
/// that are not UTF-8, become \xNN (or \t, \r and \n). If `keep_lines` is true, newlines stay.
std::string printable(std::string_view text, bool keep_lines = false);

/// Like `printable`, for at most `longest` bytes of a text. A longer text ends with "...".
std::string excerpt(std::string_view text, std::size_t longest = 40);

} // namespace troupe
