#pragma once

#include "actors/model/data_builder.hpp"
#include "messages/proto/data.pb.h"

#include <optional>
#include <string>

namespace troupe {

/// Hashes that show whether two tasks have the same records in the same order. Each part (training,
/// validation, test) has a hash of all labels and a hash of the features of up to 256 records. If
/// there are more than a few million labels, only an evenly spaced sample of them is hashed. The
/// samples include the first and the last record. The hash is XXH3 with 64 bits: it detects
/// mistakes, not forgery.
///
/// The call takes a few milliseconds for 60,000 images of 28 x 28, and its time is bounded for
/// larger data. Throws the errors of dataset::read().
proto::DataFingerprint fingerprint_of(const job_data& data);

/// Describes the first difference between two fingerprints: "the training data differ from those of
/// the coordinator: other labels (9000 records here, 9000 there)". Empty if there is no difference.
/// Parts and hashes that only one fingerprint has are not compared.
/// @param there how the text refers to the owner of `expected`: "those of the coordinator".
std::string difference(const proto::DataFingerprint& here, const proto::DataFingerprint& expected,
                       const std::string& there);

/// The fingerprint of data that a program supplies. The result is empty if the data cannot be read;
/// the workers that need the data then report the error.
std::optional<proto::DataFingerprint> fingerprint_if_readable(const job_data& data);

/// Checks that these data are equal to the coordinator's data. Does nothing if the coordinator's
/// fingerprint is not known.
/// @throws input_error that describes the difference
void require_same_data(const job_data& here,
                       const std::optional<proto::DataFingerprint>& coordinators);

/// Writes a fingerprint on one line, for a file, and reads it back. parse_fingerprint() returns
/// nothing if the text is not a fingerprint.
std::string to_text(const proto::DataFingerprint& x);
std::optional<proto::DataFingerprint> parse_fingerprint(const std::string& text);

} // namespace troupe
