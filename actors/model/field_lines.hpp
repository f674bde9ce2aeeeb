#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Problems of a job, as `validate` lists them, each with the line of its field in the text of the
/// job: "NAME:12: local_sgd.every: 0; expected ...". Problems of fields that the text does not
/// contain stay unchanged. If the text is JSON, all do.
/// @param overrides as given to `apply_override`: the text does not contain these fields.
std::string with_lines(const std::string& problems, std::string_view text, std::string_view name,
                       std::span<const std::string> overrides);

} // namespace troupe
