#pragma once

#include "messages/proto/job.pb.h"

#include <string_view>

namespace troupe {

/// Reads a job as JSON, in Protobuf's mapping: fields by their names in the schema or in camelCase,
/// enums by name, 64-bit numbers also as strings. Only the syntax is checked; see `validate`.
/// `parse_job` calls it for texts that are JSON.
/// @param name what errors call the input, usually the path.
/// @throws input_error "NAME:LINE:COLUMN: ..." for invalid JSON, "NAME: PATH: ..." for an unknown
/// field or enum value (with the nearest valid name), a wrong type, a number out of range, two
/// members of a oneof, a field that occurs twice; all such errors of the text, one per line.
proto::Job parse_job_json(std::string_view text, std::string_view name);

/// Whether a job's text is JSON: it begins with a brace, or the file is named *.json.
bool is_json_job(std::string_view text, std::string_view name);

} // namespace troupe
