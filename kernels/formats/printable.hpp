#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// A text that came from a file or a peer, as a terminal may show it: control characters, and bytes
/// that are not UTF-8, become \xNN (\t, \r and \n by these names). `keep_lines` leaves newlines.
std::string printable(std::string_view text, bool keep_lines = false);

/// `printable` of at most `longest` bytes of a text; what was longer ends in "...".
std::string excerpt(std::string_view text, std::size_t longest = 40);

} // namespace troupe
