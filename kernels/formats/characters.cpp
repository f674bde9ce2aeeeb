#include "kernels/formats/characters.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr char32_t replacement = 0xfffd;

bool exists(char32_t c) noexcept {
  return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
}

/// Length in bytes of the character that begins with this byte; 0 if none does.
std::size_t length_of(unsigned first) noexcept {
  return first < 0x80 ? 1
    : first < 0xc2    ? 0
    : first < 0xe0    ? 2
    : first < 0xf0    ? 3
    : first < 0xf5    ? 4
                      : 0;
}

} // namespace

std::pair<char32_t, std::size_t> next_character(std::span<const std::byte> bytes) noexcept {
  const auto first = std::to_integer<unsigned>(bytes[0]);
  const std::size_t length = length_of(first);
  if (length <= 1)
    return {first, length};
  if (length > bytes.size())
    return {0, 0};
  char32_t result = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = std::to_integer<unsigned>(bytes[i]);
    if ((next & 0xc0) != 0x80)
      return {0, 0};
    result = result << 6 | (next & 0x3f);
  }
  const bool shortest = length == 2 || (length == 3 && result >= 0x800) || result >= 0x10000;
  return {result, shortest && exists(result) ? length : 0};
}

std::u32string decode_utf8(std::span<const std::byte> bytes, std::string_view name) {
  std::u32string result;
  result.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const auto [character, length] = next_character(bytes.subspan(i));
    if (length == 0) {
      const auto line = 1 + std::ranges::count(result, U'\n');
      throw input_error(std::string{name} + ":" + std::to_string(line) + ": byte "
                        + std::to_string(i) + " of the file is not UTF-8; convert the file to it");
    }
    result += character;
    i += length;
  }
  return result;
}

std::string encode_utf8(std::u32string_view text) {
  std::string result;
  const auto byte = [&](char32_t x) { result += static_cast<char>(x); };
  for (char32_t c : text) {
    c = exists(c) ? c : replacement;
    if (c < 0x80) {
      byte(c);
    } else if (c < 0x800) {
      byte(0xc0 | c >> 6);
      byte(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      byte(0xe0 | c >> 12);
      byte(0x80 | (c >> 6 & 0x3f));
      byte(0x80 | (c & 0x3f));
    } else {
      byte(0xf0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3f));
      byte(0x80 | (c >> 6 & 0x3f));
      byte(0x80 | (c & 0x3f));
    }
  }
  return result;
}

vocabulary::vocabulary(std::u32string_view text) {
  // A text has few distinct characters. Removing duplicates while reading saves memory.
  std::u32string found;
  const auto compact = [&] {
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
  };
  std::size_t bound = 4096;
  for (const char32_t c : text) {
    found += c;
    if (found.size() < bound)
      continue;
    compact();
    bound = std::max<std::size_t>(4096, 2 * found.size());
  }
  compact();
  characters_ = std::move(found);
}

std::vector<std::int32_t> vocabulary::encode(std::u32string_view text,
                                             std::string_view name) const {
  std::vector<std::int32_t> result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto found = std::ranges::lower_bound(characters_, text[i]);
    if (found == characters_.end() || *found != text[i]) {
      const auto before = text.substr(0, i);
      const auto line = 1 + std::ranges::count(before, U'\n');
      const auto column = i - (before.rfind(U'\n') + 1) + 1;
      throw input_error(std::string{name} + ":" + std::to_string(line) + ":"
                        + std::to_string(column) + ": the character \""
                        + printable(encode_utf8(text.substr(i, 1))) + "\" is not one of the "
                        + std::to_string(size()) + " that the model knows");
    }
    result.push_back(static_cast<std::int32_t>(found - characters_.begin()));
  }
  return result;
}

std::u32string vocabulary::decode(std::span<const std::int32_t> tokens) const {
  std::u32string result;
  result.reserve(tokens.size());
  for (const auto token : tokens)
    result += characters_[static_cast<std::size_t>(token)];
  return result;
}

} // namespace troupe
