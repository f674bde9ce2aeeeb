#pragma once

#include "actors/output/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A table as text. Its cells are aligned in columns.
class text_table {
public:
  /// @param alignment 'l' (left) or 'r' (right) for each column, from the first on. All further
  /// columns are aligned right.
  explicit text_table(std::vector<std::string> header, std::string_view alignment = "l")
    : alignment_(alignment), rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// Adds a line that is not divided into columns.
  void add_line(std::string text) {
    add({std::move(text)});
    separate_.push_back(rows_.size() - 1);
  }

  /// The lines of the table, one per row. Cells may hold any characters of UTF-8.
  std::vector<std::string> lines() const {
    std::vector<std::size_t> widths;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      widths.resize(std::max(widths.size(), rows_[r].size()));
      for (std::size_t i = 0; i < rows_[r].size() && !is_separate(r); ++i)
        widths[i] = std::max(widths[i], cells_of(rows_[r][i]));
    }
    std::vector<std::string> result;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      result.push_back(is_separate(r) ? rows_[r][0] : line_of(rows_[r], widths));
    return result;
  }

  /// Prints the table to stdout, each line after `indent` spaces.
  void print(std::size_t indent = 0) const {
    for (const auto& text : lines())
      fmt::print("{:{}}{}\n", "", indent, text);
  }

private:
  bool is_separate(std::size_t row) const { return std::ranges::binary_search(separate_, row); }

  std::string line_of(const std::vector<std::string>& row,
                      const std::vector<std::size_t>& widths) const {
    std::string result;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - cells_of(row[i]), ' ');
      const bool left = i < alignment_.size() && alignment_[i] == 'l';
      result += (i == 0 ? "" : "  ") + (left ? row[i] + space : space + row[i]);
    }
    return result;
  }

  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> separate_; // the rows of add_line(), in ascending order
};

} // namespace troupe
