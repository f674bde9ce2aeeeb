#pragma once

#include "messages/proto/job.pb.h"

#include <string_view>

namespace troupe {

/// Reads a job as JSON with Protobuf's mapping: fields by their names in the schema or in
/// camelCase, enums by name, 64-bit numbers also as strings. This function checks only the syntax.
/// `validate` checks the values. `parse_job` calls this function for JSON texts.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error "NAME:LINE:COLUMN: ..." for invalid JSON; "NAME: PATH: ..." for an unknown
/// field or enum value (with the nearest valid name), a wrong type, a number out of range, two
/// members of a oneof, or a field that occurs twice. It lists all such errors, one per line.
proto::Job parse_job_json(std::string_view text, std::string_view name);

/// True if a job's text is JSON: it begins with a brace, or the file is named *.json.
bool is_json_job(std::string_view text, std::string_view name);

} // namespace troupe
