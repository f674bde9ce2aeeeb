#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// Sparse rows with a label each (compressed rows).
struct libsvm_rows {
  /// (rows), as in the file.
  std::vector<double> labels;
  /// (rows + 1): the entries of row i are row_starts[i] .. row_starts[i + 1] - 1.
  std::vector<std::uint64_t> row_starts{0};
  /// Columns counted from 0, ascending within a row.
  std::vector<std::uint32_t> columns;
  /// As `columns`.
  std::vector<float> values;
  /// The largest column + 1; 0 if all rows are empty.
  std::uint32_t width = 0;

  std::uint64_t rows() const noexcept { return labels.size(); }
};

/// Reads the text format of LIBSVM (https://www.csie.ntu.edu.tw/~cjlin/libsvm): a row per line,
/// `label index:value index:value ...`, indexes from 1 and ascending; text after a # is a comment;
/// lines without a label are skipped. Memory: at most 16 bytes per byte of input.
/// @param name what errors call the input, usually the path.
/// @throws input_error naming `name` and the line: a label or value that is no finite number (of
/// float32), an index that is no whole number from 1 to 2^31, one that is not larger than the index
/// before it (which includes a repeated one), no rows.
libsvm_rows parse_libsvm(std::span<const std::byte> bytes, std::string_view name);

} // namespace troupe
