#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct protocol_traits;

/// Reads a job in Protobuf text format or as JSON (job_json.hpp). It is JSON if the text begins
/// with a brace or the file is named *.json. This function checks only the syntax. `validate`
/// checks the values.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error "NAME:LINE:COLUMN: ...", one line for each error in the text. For an unknown
/// field or enum value, it suggests the nearest valid name.
proto::Job parse_job(std::string_view text, std::string_view name);

/// Writes the job in the text format that `parse_job` reads.
std::string job_text(const proto::Job& job);

/// Largest size of a job file, in bytes.
inline constexpr std::uint64_t most_job_bytes = std::uint64_t{16} << 20;

/// Reads a job file with `parse_job`.
/// @throws input_error also if the file is missing, unreadable or longer than 16 MiB.
proto::Job load_job(const std::filesystem::path& path);

/// Applies one `--set`: "optimizer.momentum=0.8", "protocol=RING", "model.layer[1].dense.units=64".
///
/// Messages along the path are created as needed. Setting a member of a oneof replaces the previous
/// member ("data.csv.path=..." makes the source a CSV file). A repeated field needs an index. An
/// index equal to the field's size appends an element. Strings are taken literally, without quotes.
/// The value of a message is text format in braces ("learning_rate.cosine={}").
/// @throws input_error that quotes the assignment: no "=", an unknown field (nearest valid name),
/// an index that is missing or out of range, a value of the wrong type (nearest valid enum value).
/// The job is then unchanged.
void apply_override(proto::Job& job, std::string_view assignment);

/// Replaces each ${NAME} with the value of the environment variable NAME. Any other "$" is kept.
/// @param field the name of the text in errors, such as "data.idx.images".
/// @throws input_error if a variable is not set, or if a "${" is not closed.
std::string expand_environment(std::string_view text, std::string_view field);

/// The origin of a job's data: the source in the job, or the program that embeds troupe.
enum class data_from { job, program };

/// Checks everything that can be checked without reading data. Call it after the overrides.
/// @param data if a program supplies the data, the job may omit the source.
/// @param own protocols that the program adds (protocol CUSTOM).
/// @throws input_error that lists *all* problems, one per line, each beginning with the field's
/// path.
void validate(const proto::Job& job, data_from data = data_from::job,
              std::span<const protocol_traits> own = {});

/// The fields of a job that must agree between nodes, and between a job and its weights, as text.
/// They include model, data, optimizer, learning rate, protocol, epochs and seed. Others, such as
/// the name, the output and the time limits, are not included. A value equal to its default is left
/// out. Therefore, a job that states a default has the same text as a job that omits it. Variables
/// in paths are not replaced, because nodes may keep the data in different places.
std::string canonical_text(const proto::Job& job);

/// The fields of `optimizer` that are set, but that this kind of optimizer does not use: "momentum
/// has no effect with kind SGD (MOMENTUM and NESTEROV use it)".
std::vector<std::string> unused_settings(const proto::Optimizer& x);

/// SHA-256 of `canonical_text`, 64 hexadecimal digits.
std::string job_hash(const proto::Job& job);

/// All differences between two jobs in the fields that `job_hash` covers, each as text:
/// `optimizer.momentum: 0.9 here, 0.8 there`. Some messages have a meaning even if they are empty,
/// such as `moving_average {}`. They are compared as well, although the hash does not cover this.
std::vector<std::string> differences(const proto::Job& here, const proto::Job& there);

/// The first of the differences() between two jobs. Empty if there is none.
std::string first_difference(const proto::Job& here, const proto::Job& there);

} // namespace troupe
