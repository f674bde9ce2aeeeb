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

/// Reads a job in Protobuf text format, or as JSON (job_json.hpp): a text that begins with a brace,
/// or a file named *.json. Only the syntax is checked; see `validate`.
/// @param name what errors call the input, usually the path.
/// @throws input_error "NAME:LINE:COLUMN: ...", all errors of the text, one per line; for an
/// unknown field or enum value with the nearest valid name.
proto::Job parse_job(std::string_view text, std::string_view name);

/// The job in text format, as `parse_job` reads it.
std::string job_text(const proto::Job& job);

/// Longer jobs are refused.
inline constexpr std::uint64_t most_job_bytes = std::uint64_t{16} << 20;

/// `parse_job` of a file.
/// @throws input_error also when the file is missing, unreadable or longer than 16 MiB.
proto::Job load_job(const std::filesystem::path& path);

/// Applies one `--set`: "optimizer.momentum=0.8", "protocol=RING", "model.layer[1].dense.units=64".
///
/// Messages on the way are created as needed; a member of a oneof replaces the previous one
/// ("data.csv.path=..." makes the source a CSV file). A repeated field takes an index, from 0 to
/// its size (which appends). Strings are taken as they are, without quotes; a message takes text
/// format in braces ("learning_rate.cosine={}").
/// @throws input_error naming the assignment: no "=", unknown field (nearest valid name), index out
/// of range or missing, a value of the wrong type (nearest valid enum value). The job is unchanged
/// then.
void apply_override(proto::Job& job, std::string_view assignment);

/// Replaces each ${NAME} by the environment variable NAME; "$" elsewhere is kept.
/// @param field what errors call the text, such as "data.idx.images".
/// @throws input_error when a variable is not set, or a "${" is not closed.
std::string expand_environment(std::string_view text, std::string_view field);

/// Where the data of a job comes from: the job's source, or an embedding program.
enum class data_from { job, program };

/// Checks everything that can be known without data. Call after the overrides.
/// @param data if a program supplies the data, the job may leave out the source.
/// @param own protocols that the program adds (protocol CUSTOM).
/// @throws input_error listing *all* problems, one per line, each beginning with the field's path.
void validate(const proto::Job& job, data_from data = data_from::job,
              std::span<const protocol_traits> own = {});

/// The fields that must agree between nodes, and between a job and its weights, as text: model,
/// data, optimizer, rate, protocol, epochs, seed, bounds and sizes on the wire; not name, output
/// and time-outs. Values equal to their default are left out: a job that states a default equals
/// one that leaves it out. Paths stay unexpanded: nodes may keep the data elsewhere.
std::string canonical_text(const proto::Job& job);

/// SHA-256 of `canonical_text`, 64 hexadecimal digits.
std::string job_hash(const proto::Job& job);

/// All places where two jobs differ in what `job_hash` covers, each as text: `optimizer.momentum:
/// 0.9 here, 0.8 there`.
std::vector<std::string> differences(const proto::Job& here, const proto::Job& there);

/// The first place where two jobs differ in what `job_hash` covers, as text: `optimizer.momentum:
/// 0.9 here, 0.8 there`; empty when their hashes agree.
std::string first_difference(const proto::Job& here, const proto::Job& there);

} // namespace troupe
