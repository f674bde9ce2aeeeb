#include "actors/output/text.hpp"

#include "actors/checkpoint/best_evaluation.hpp"
#include "kernels/formats/characters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr char32_t replacement = 0xfffd;

/// Calls `f` with each character and its bytes. An invalid byte gives `replacement`.
template <class F>
void for_each_character(std::string_view text, F f) {
  while (!text.empty()) {
    const auto [x, length] = next_character(std::as_bytes(std::span{text}));
    const auto bytes = std::max<std::size_t>(length, 1);
    f(length > 0 ? x : replacement, text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

bool is_control(char32_t x) {
  // The last two ranges are Unicode's control characters for text direction.
  return x < 0x20 || (x >= 0x7f && x < 0xa0) || (x >= 0x202a && x <= 0x202e)
    || (x >= 0x2066 && x <= 0x2069);
}

} // namespace

std::string best_text(const best_evaluation& x, bool kept) {
  return fmt::format("epoch {}, step {}, loss {:.5g} ({})", x.epoch, x.step, x.loss,
                     kept ? "weights in best.safetensors" : "its weights were not kept");
}

// If a worker is lost, the number of samples may decrease, so a rate may be negative.
std::string rate_text(double x) {
  return x < 10 ? fmt::format("{:.1f}", std::max(x, 0.0)) : grouped(x);
}

std::string first_numbers(std::span<const double> x) {
  constexpr std::size_t most = 64;
  const auto shown = x.first(std::min(x.size(), most));
  auto result = fmt::format("{:.7g}", fmt::join(shown, "  "));
  if (x.size() > shown.size())
    result += fmt::format("  (and {} more)", grouped(static_cast<double>(x.size() - shown.size())));
  return result;
}

std::string grouped(double x) {
  if (!std::isfinite(x))
    return fmt::format("{}", x);
  const auto digits = fmt::format("{:.0f}", std::abs(x));
  std::string result;
  if (x < 0 && digits != "0")
    result += '-';
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0)
      result += ',';
    result += digits[i];
  }
  return result;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds >= 59.95)
    return clock_text(seconds);
  return fmt::format("{:.{}f} s", std::max(seconds, 0.0), seconds < 0.995 ? 2 : 1);
}

std::string clock_text(double seconds) {
  if (!(seconds < 1e8))
    return "?";
  const auto all = static_cast<long>(std::llround(std::max(seconds, 0.0)));
  if (all < 3600)
    return fmt::format("{}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::string counted(double n, std::string_view what) {
  return fmt::format("{} {}{}", grouped(n), what, n == 1 ? "" : "s");
}

std::string escape_html(std::string_view text) {
  std::string result;
  for_each_character(text, [&](auto x, std::string_view) {
    switch (x) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    case '\'':
      result += "&#39;";
      break;
    case '\n':
    case '\t':
      result += static_cast<char>(x);
      break;
    default:
      // The last two code points of each plane are not characters, and XML does not allow them.
      result +=
        encode_utf8(std::u32string(1, is_control(x) || (x & 0xfffe) == 0xfffe ? replacement : x));
    }
  });
  return result;
}

std::string cut(std::string_view text, std::size_t cells, bool unicode) {
  if (cells_of(text) <= cells)
    return std::string{text};
  std::string result;
  std::size_t n = 0;
  for_each_character(text, [&](auto, std::string_view bytes) {
    if (++n < cells)
      result += bytes;
  });
  if (cells > 0)
    result += unicode ? "…" : ".";
  return result;
}

std::size_t cells_of(std::string_view text) {
  std::size_t result = 0;
  for_each_character(text, [&](auto, std::string_view) { ++result; });
  return result;
}

} // namespace troupe
