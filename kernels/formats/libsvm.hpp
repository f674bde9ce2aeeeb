#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Sparse rows as compressed rows, each with a label.
struct libsvm_rows {
  /// (rows): the labels as they are in the file.
  std::vector<double> labels;
  /// (rows + 1): the entries of row i are row_starts[i] .. row_starts[i + 1] - 1.
  std::vector<std::uint64_t> row_starts{0};
  /// Columns counted from 0, ascending within a row.
  std::vector<std::uint32_t> columns;
  /// The same size as `columns`.
  std::vector<float> values;
  /// The largest column + 1. 0 if all rows are empty.
  std::uint32_t width = 0;

  std::uint64_t rows() const noexcept { return labels.size(); }
};

/// Reads the text format of LIBSVM (https://www.csie.ntu.edu.tw/~cjlin/libsvm): one row per line,
/// `label index:value index:value ...`, with ascending indexes from 1. Text after a # is a comment.
/// Lines that contain nothing else are skipped. Memory: at most 16 bytes per byte of input.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name` and the line, for:
/// - a label that is not a finite number, or a value that is not a finite float32;
/// - an index that is not a whole number from 1 to 2^31;
/// - an index that is not larger than the previous index of the row;
/// - no rows.
libsvm_rows parse_libsvm(std::span<const std::byte> bytes, std::string_view name);

/// Reads a LIBSVM file in parts, so that only one part is in memory. A row without a label gets the
/// label 0.
class libsvm_reader {
public:
  /// @param bytes the caller's memory. This object refers to it.
  libsvm_reader(std::span<const std::byte> bytes, std::string name);

  /// Reads the next rows, at most `most`. At the end of the file, the result has no rows.
  /// @throws input_error in the same cases as parse_libsvm, except for a file without rows.
  libsvm_rows next(std::uint64_t most);

private:
  std::string_view text_;
  std::string name_;
  std::uint64_t line_ = 0;
};

} // namespace troupe
