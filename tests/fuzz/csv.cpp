// Fuzz target: CSV tables. Reads the first columns that the header names.

#include "kernels/formats/csv.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <cmath>

using namespace troupe;

TROUPE_FUZZ_TARGET(csv, input) {
  auto columns = parse_csv_header(input, "table.csv");
  fuzz::require(!columns.empty(), "a header names columns");
  columns.resize(std::min<std::size_t>(columns.size(), 3));
  const auto table = parse_csv(input, columns, "table.csv");
  fuzz::require(table.names == columns, "columns are those that were asked for");
  fuzz::require(table.rows > 0 && table.values.size() == table.rows * columns.size(),
                "each row has a value per column");
  fuzz::require(table.values.size() <= input.size(), "a value takes a byte of input or more");
  fuzz::require(std::ranges::all_of(table.values, [](double x) { return std::isfinite(x); }),
                "values are finite");
  std::vector<csv_column> texts;
  for (auto& name : columns)
    texts.push_back({name, true});
  const auto named = parse_csv(input, texts, std::span<const std::string>{}, "table.csv");
  fuzz::require(named.rows == table.rows, "texts have the rows of numbers");
  csv_reader parts{input, texts, {}, "table.csv"};
  std::uint64_t rows = 0;
  for (auto part = parts.next(2); part.rows > 0; part = parts.next(2))
    rows += part.rows;
  fuzz::require(rows == table.rows, "parts have the rows of the whole");
  for (auto& each : named.texts) {
    std::vector<std::string> names;
    const auto which = sort_categories(each, names);
    fuzz::require(names.size() <= each.size() && which.size() == each.size(),
                  "each text has a category");
    for (auto x : which)
      fuzz::require(x < names.size(), "categories have names");
  }
}
