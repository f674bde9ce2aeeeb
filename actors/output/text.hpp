#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

struct best_evaluation;

/// "epoch 3, step 120, loss 0.25 (weights in best.safetensors)".
/// @param kept whether best.safetensors has these weights
std::string best_text(const best_evaluation& x, bool kept);

/// A number of things per second: "0.4", "1,234".
std::string rate_text(double x);

/// The first 64 of these numbers, with 7 digits, and how many others there are:
/// "0.25  -1.5  (and 998 more)".
std::string first_numbers(std::span<const double> x);

/// 12345678 -> "12,345,678".
std::string grouped(double x);

/// Seconds as people write them: "0.42 s", "7.1 s", "2:05", "1:00:09".
std::string duration_text(double seconds);

/// Seconds as a clock shows them: "0:07", "2:05", "1:00:09".
std::string clock_text(double seconds);

/// "1 worker", "2 workers".
std::string counted(double n, std::string_view what);

/// Makes any text safe for HTML and XML, between tags and in quoted attributes. It escapes markup,
/// and replaces invalid UTF-8 and control characters.
std::string escape_html(std::string_view text);

/// At most the first `cells` characters of UTF-8 text. If something is cut off, the result ends
/// with "…". If `unicode` is false, it ends with ".".
std::string cut(std::string_view text, std::size_t cells, bool unicode);

/// Number of characters in UTF-8 text.
std::size_t cells_of(std::string_view text);

} // namespace troupe
