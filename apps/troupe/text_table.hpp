#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace troupe {

/// Cells in columns. The first column is aligned left, the others right.
class text_table {
public:
  explicit text_table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// Prints the table to stdout. Each line is indented by `indent` spaces.
  void print(std::size_t indent = 0) const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto& row : rows_) {
      std::string text(indent, ' ');
      for (std::size_t i = 0; i < row.size(); ++i)
        text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                       : fmt::format("  {:>{}}", row[i], widths[i]);
      fmt::print("{}\n", text);
    }
  }

private:
  std::vector<std::vector<std::string>> rows_;
};

} // namespace troupe
