#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// A text from a file or a peer, made safe for a terminal: control characters, and bytes that are
/// not UTF-8, become \xNN (\t, \r and \n by these names). `keep_lines` leaves newlines.
std::string printable(std::string_view text, bool keep_lines = false);

/// `printable` of at most `longest` bytes of a text; a longer one ends in "...".
std::string excerpt(std::string_view text, std::size_t longest = 40);

} // namespace troupe
