#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Selected columns of a CSV file, as numbers.
struct csv_columns {
  std::vector<std::string> names; ///< the requested columns, in the order of the request
  std::uint64_t rows = 0;
  std::vector<double> values; ///< (rows, names.size()), row-major
};

/// Reads comma-separated values with a header line (RFC 4180): quoted fields, "" for a quote inside
/// a quoted field, CRLF or LF. A UTF-8 byte order mark is skipped. Blank lines at the end are
/// ignored.
///
/// The selected columns must contain numbers. Other columns may contain any text. Memory: at most 8
/// bytes per byte of input.
/// @param columns names from the header; each name once.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name`, the line (counted from 1) and the column, for:
/// - no header, an unknown column (with the nearest valid name), or a column that is named twice;
/// - a line whose number of fields differs from the header, or a quote that is never closed;
/// - a value that is empty, not finite or not a number;
/// - no records.
csv_columns parse_csv(std::span<const std::byte> bytes, std::span<const std::string> columns,
                      std::string_view name);

/// A column to read, and its kind.
struct csv_column {
  std::string name;
  /// True if the column contains texts instead of numbers.
  bool text = false;
};

/// Selected columns of a CSV file, as numbers and texts, possibly with missing values.
struct csv_table {
  std::uint64_t rows = 0;
  /// (rows, columns), row-major. For a column of numbers, the number; for a column of texts, the
  /// index of the text in `texts`. NaN if there is no value.
  std::vector<double> values;
  /// For each column of texts: its distinct texts in the order of their first occurrence, without
  /// surrounding blanks. Empty for a column of numbers.
  std::vector<std::vector<std::string>> texts;
};

/// Like the other parse_csv, but also for columns of texts, and values may be missing. A value is
/// missing if its field is empty or is one of `missing`.
/// @throws input_error in the same cases as the other parse_csv, but not for a missing value. Also
/// for a text that is not UTF-8.
csv_table parse_csv(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                    std::span<const std::string> missing, std::string_view name);

/// Reads a CSV file in parts, like parse_csv. Only one part is in memory.
class csv_reader {
public:
  /// Reads the header. Throws input_error like parse_csv if the header or a column is wrong.
  /// @param bytes the caller's memory. This object refers to it.
  csv_reader(std::span<const std::byte> bytes, std::span<const csv_column> columns,
             std::vector<std::string> missing, std::string name);
  csv_reader(const csv_reader&) = delete;
  csv_reader& operator=(const csv_reader&) = delete;
  ~csv_reader();

  /// Reads the next rows, at most `most`. At the end of the file, the result has no rows. The
  /// indexes of texts refer to `texts` of the same result.
  /// @throws input_error in the same cases as parse_csv, except for a file without records.
  csv_table next(std::uint64_t most);

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

/// A missing value of a table. `place` is for messages: "table.csv:3: column "age"". `column` is
/// the position in the selected columns.
struct csv_gap {
  std::string place;
  std::size_t column = 0;
};

/// The first missing value. Its place is empty if no value is missing. Reads the whole file again.
csv_gap first_gap(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                  std::span<const std::string> missing, std::string_view name);

/// Orders texts as categories: by number if all texts are finite numbers, otherwise by their bytes.
/// Texts that stand for the same number, such as "1" and "1.0", are one category.
/// @param names on return, one text for each category, in order
/// @return the category of each text
std::vector<std::size_t> sort_categories(std::span<const std::string> texts,
                                         std::vector<std::string>& names);

/// Finds categories by their texts. A text that stands for the same number as a category, such as
/// "1.0" for "1", is this category, if all categories are numbers.
class category_index {
public:
  /// @param names distinct categories, such as those from sort_categories()
  explicit category_index(std::span<const std::string> names);

  /// The position of the category in `names`; nothing if the text is none of them.
  std::optional<std::size_t> find(const std::string& text) const;

private:
  std::unordered_map<std::string, std::size_t> texts_;
  /// Empty if a category is not a number.
  std::unordered_map<double, std::size_t> numbers_;
};

/// Reads the column names of a CSV file.
/// @throws input_error with `name` if there is no header or a quote is never closed.
std::vector<std::string> parse_csv_header(std::span<const std::byte> bytes, std::string_view name);

} // namespace troupe
