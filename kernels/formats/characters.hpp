#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Decodes a text in UTF-8 (RFC 3629), which includes plain ASCII, to characters (code points).
/// Memory: 4 bytes per byte of input.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name`, the line and the byte if the input is not UTF-8.
std::u32string decode_utf8(std::span<const std::byte> bytes, std::string_view name);

/// The character at the start of `bytes` (which must not be empty), and its length in bytes. The
/// length is 0 if the bytes are not valid UTF-8.
std::pair<char32_t, std::size_t> next_character(std::span<const std::byte> bytes) noexcept;

/// Encodes a text as UTF-8. Invalid code points become U+FFFD.
std::string encode_utf8(std::u32string_view text);

/// The characters that a model knows. Each has a number. Immutable.
class vocabulary {
public:
  vocabulary() = default;
  /// The distinct characters of a text, in the order of their code points.
  explicit vocabulary(std::u32string_view text);

  std::size_t size() const noexcept { return characters_.size(); }

  /// All characters, in the order of their numbers.
  std::u32string_view characters() const noexcept { return characters_; }

  /// The numbers of the characters of a text.
  /// @throws input_error with `name`, line and column if a character is unknown.
  std::vector<std::int32_t> encode(std::u32string_view text, std::string_view name) const;

  /// The text with the characters of these numbers. Each number must be at least 0 and below
  /// size().
  std::u32string decode(std::span<const std::int32_t> tokens) const;

private:
  std::u32string characters_; // ascending
};

} // namespace troupe
