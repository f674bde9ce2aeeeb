#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Problems of a job, as `validate` lists them, each with the line of its field in the text of the
/// job: "NAME:12: local_sgd.every: 0; expected ...". Problems of fields that the text does not have
/// stay as they are, and all of them if the text is JSON.
/// @param overrides as given to `apply_override`: what they change is not in the text.
std::string with_lines(const std::string& problems, std::string_view text, std::string_view name,
                       std::span<const std::string> overrides);

} // namespace troupe
