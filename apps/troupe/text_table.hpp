#pragma once

#include "actors/output/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Cells in columns: the first is aligned left, the others right.
class text_table {
public:
  explicit text_table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// The lines of the table, one per row. Cells may hold any characters of UTF-8.
  std::vector<std::string> lines() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], cells_of(row[i]));
    }
    std::vector<std::string> result;
    for (const auto& row : rows_) {
      std::string text;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string space(widths[i] - cells_of(row[i]), ' ');
        text += i == 0 ? row[i] + space : "  " + space + row[i];
      }
      result.push_back(std::move(text));
    }
    return result;
  }

  /// Prints the table to stdout, each line after `indent` spaces.
  void print(std::size_t indent = 0) const {
    for (const auto& text : lines())
      fmt::print("{:{}}{}\n", "", indent, text);
  }

private:
  std::vector<std::vector<std::string>> rows_;
};

} // namespace troupe
