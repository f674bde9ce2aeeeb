#include "kernels/formats/characters.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <utf8.h>

namespace troupe {

namespace {

constexpr char32_t replacement = 0xfffd;
constexpr std::size_t longest_character = 4;

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace

std::pair<char32_t, std::size_t> next_character(std::span<const std::byte> bytes) noexcept {
  const auto text = as_text(bytes).substr(0, longest_character);
  if (utf8::find_invalid(text.begin(), text.end()) == text.begin())
    return {0, 0};
  auto end = text.begin();
  const char32_t result = utf8::unchecked::next(end);
  return {result, static_cast<std::size_t>(end - text.begin())};
}

std::u32string decode_utf8(std::span<const std::byte> bytes, std::string_view name) {
  const auto text = as_text(bytes);
  const auto wrong = utf8::find_invalid(text.begin(), text.end());
  if (wrong != text.end()) {
    const auto line = 1 + std::count(text.begin(), wrong, '\n');
    throw input_error(std::string{name} + ":" + std::to_string(line) + ": byte "
                      + std::to_string(wrong - text.begin())
                      + " of the file is not UTF-8; convert the file to it");
  }
  std::u32string result;
  result.reserve(text.size());
  utf8::unchecked::utf8to32(text.begin(), text.end(), std::back_inserter(result));
  return result;
}

std::string encode_utf8(std::u32string_view text) {
  std::string result;
  auto out = std::back_inserter(result);
  for (const char32_t c : text) {
    try {
      utf8::append(c, out);
    } catch (const utf8::invalid_code_point&) {
      utf8::append(replacement, out);
    }
  }
  return result;
}

vocabulary::vocabulary(std::u32string_view text) {
  // A text has few distinct characters. Removing duplicates now and then, while reading, saves
  // memory.
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
