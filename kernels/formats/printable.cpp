#include "kernels/formats/printable.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Bytes of the UTF-8 character (RFC 3629) at the start of a text; 0 if there is none, or it
/// controls the terminal.
std::size_t character_at(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = at(0);
  if (lead < 0x80)
    return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf ? 2
    : lead >= 0xe0 && lead <= 0xef                        ? 3
    : lead >= 0xf0 && lead <= 0xf4                        ? 4
                                                          : 0;
  if (length == 0 || text.size() < length)
    return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  const bool overlong = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xf0 && at(1) < 0x90);
  const bool surrogate = lead == 0xed && at(1) >= 0xa0;
  const bool beyond = lead == 0xf4 && at(1) >= 0x90;
  const bool control = lead == 0xc2 && at(1) < 0xa0;
  return overlong || surrogate || beyond || control ? 0 : length;
}

void append_escaped(std::string& out, unsigned char c) {
  constexpr std::string_view digits = "0123456789abcdef";
  switch (c) {
  case '\t':
    out += "\\t";
    return;
  case '\r':
    out += "\\r";
    return;
  case '\n':
    out += "\\n";
    return;
  default:
    out += "\\x";
    out += digits[c >> 4];
    out += digits[c & 0xf];
  }
}

} // namespace

std::string printable(std::string_view text, bool keep_lines) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    auto length = keep_lines && text[0] == '\n' ? std::size_t{1} : character_at(text);
    if (length > 0) {
      result += text.substr(0, length);
    } else {
      append_escaped(result, static_cast<unsigned char>(text[0]));
      length = 1;
    }
    text.remove_prefix(length);
  }
  return result;
}

std::string excerpt(std::string_view text, std::size_t longest) {
  if (text.size() <= longest)
    return printable(text);
  auto end = std::max<std::size_t>(longest, 3) - 3;
  // Not in the middle of a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return printable(text.substr(0, end)) + "...";
}

} // namespace troupe
