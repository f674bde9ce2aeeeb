#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Adds line numbers to the problems of a job, as listed by `validate`: "NAME:12: local_sgd.every:
/// 0; expected ...". A problem stays unchanged if the text does not contain its field, or if the
/// text is JSON.
/// @param overrides the assignments that were given to `apply_override`. The text does not contain
/// their values, so a problem with such a value gets no line number.
std::string with_lines(const std::string& problems, std::string_view text, std::string_view name,
                       std::span<const std::string> overrides);

} // namespace troupe
