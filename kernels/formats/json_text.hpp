#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace troupe {

/// Parses JSON, with two more checks than the library nlohmann-json. A key that occurs twice in an
/// object is an error, because libraries differ in which of the two values they use. Nesting deeper
/// than 64 is also an error. Callers need nlohmann-json.
/// @param name the name of the text in errors, usually its path.
/// @throws input_error. For syntax, the text is "NAME:LINE:COLUMN: ...". For all other errors, it
/// is "NAME: PATH: ...", with the path of the field, such as `cluster.worker[1]`.
nlohmann::json parse_json(std::string_view text, std::string_view name);

/// The path of a field of an object: "cluster" and "ps" give "cluster.ps". An empty path stands for
/// the root object.
std::string json_field(const std::string& path, std::string_view key);

/// The path of an element of a list: "cluster.worker[1]".
std::string json_element(const std::string& path, std::size_t index);

/// The kind of a value, for messages: "a number", "a list".
const char* json_kind(const nlohmann::json& x);

/// A value as text for messages. If the text is longer than 60 bytes, it is cut after a whole
/// character and ends with "...".
std::string json_excerpt(const nlohmann::json& x);

} // namespace troupe
