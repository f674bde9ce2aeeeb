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
  std::vector<std::string> names; ///< the requested columns, in that order
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

/// A column to read, and how.
struct csv_column {
  std::string name;
  /// Whether the column holds any text, not numbers.
  bool text = false;
};

/// Chosen columns of a CSV file, as numbers and texts, with gaps.
struct csv_table {
  std::uint64_t rows = 0;
  /// (rows, columns), row-major: a number, or the index of a text of its column; NaN if there is no
  /// value.
  std::vector<double> values;
  /// For each column, its distinct texts in the order of their first rows, without blanks around
  /// them. Empty for numbers.
  std::vector<std::vector<std::string>> texts;
};

/// As parse_csv above, of numbers and texts. Fields that are empty, or one of `missing`, have no
/// value.
/// @throws input_error as above, except that a missing value is not an error.
csv_table parse_csv(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                    std::span<const std::string> missing, std::string_view name);

/// The position of the first missing value, for messages: "table.csv:3: column "age"". Reads the
/// file again.
std::string first_gap(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                      std::span<const std::string> missing, std::string_view name);

/// Orders texts as categories: by number, if all are finite numbers; else by their bytes. Texts of
/// the same number are one category.
/// @return the category of each text; `names` gets a text of each category, in order.
std::vector<std::size_t> sort_categories(std::span<const std::string> texts,
                                         std::vector<std::string>& names);

/// The column names of a CSV file.
/// @throws input_error naming `name` when there is no header or a quote stays open.
std::vector<std::string> parse_csv_header(std::span<const std::byte> bytes, std::string_view name);

} // namespace troupe
