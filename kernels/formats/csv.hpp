#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Chosen columns of a CSV file, as numbers.
struct csv_columns {
  std::vector<std::string> names; ///< the columns that were asked for, in that order
  std::uint64_t rows = 0;
  std::vector<double> values; ///< (rows, names.size()), row-major
};

/// Reads comma-separated values with a header line (RFC 4180: quoted fields, "" for a quote inside,
/// CRLF or LF; a UTF-8 byte order mark is skipped; blank lines at the end are ignored).
///
/// Only the chosen columns must hold numbers; the others may hold anything. Memory: at most 8 bytes
/// per byte of input.
/// @param columns names as in the header; each once.
/// @param name what errors call the input, usually the path.
/// @throws input_error naming `name`, the line (counted from 1) and the column: no header, unknown
/// column (with the nearest valid name), a column named twice, a line with another number of fields
/// than the header, an open quote, an empty or non-finite or otherwise not numeric value, no
/// records.
csv_columns parse_csv(std::span<const std::byte> bytes, std::span<const std::string> columns,
                      std::string_view name);

/// The column names of a CSV file.
/// @throws input_error naming `name` when there is no header or a quote stays open.
std::vector<std::string> parse_csv_header(std::span<const std::byte> bytes, std::string_view name);

} // namespace troupe
