#include "kernels/formats/printable.hpp"

#include "kernels/formats/characters.hpp"

#include <algorithm>
#include <span>

namespace troupe {

namespace {

/// Length in bytes of the UTF-8 character at the start of a text. 0 if the bytes are not UTF-8, or
/// are a control character, which could change the terminal.
std::size_t character_at(std::string_view text) {
  const auto [character, length] = next_character(std::as_bytes(std::span{text}));
  return character < 0x20 || (character >= 0x7f && character < 0xa0) ? 0 : length;
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
  const auto most = std::max<std::size_t>(longest, 3) - 3;
  const auto length_at = [&](std::size_t begin) {
    const auto [_, length] = next_character(std::as_bytes(std::span{text.substr(begin)}));
    return std::max<std::size_t>(length, 1); // A byte that belongs to no character is shown alone.
  };
  std::size_t end = 0;
  for (std::size_t next = 0; next <= most; next += length_at(next))
    end = next;
  return printable(text.substr(0, end)) + "...";
}

} // namespace troupe
