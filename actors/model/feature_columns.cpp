#include "actors/model/feature_columns.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/characters.hpp"
#include "kernels/formats/glob.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <set>
#include <span>

namespace troupe {

namespace {

bool has_wildcard(std::string_view name) noexcept {
  return name.find_first_of("*?") != name.npos;
}

/// Throws input_error if the name of a column is not UTF-8, because it is stored with the weights.
void check_utf8(const std::string& column, std::string_view table) {
  try {
    decode_utf8(std::as_bytes(std::span{column}), table);
  } catch (const input_error&) {
    throw input_error(std::string{table} + ": the name of column \"" + excerpt(column)
                      + "\" is not UTF-8; convert the table (iconv -f LATIN1 -t UTF-8)");
  }
}

} // namespace

bool has_wildcards(const proto::Csv& csv) noexcept {
  return std::ranges::any_of(csv.features(), has_wildcard);
}

std::vector<std::string> feature_columns(const proto::Csv& csv,
                                         std::span<const std::string> columns,
                                         std::string_view table) {
  const auto is_pattern = [&](const std::string& name) {
    return has_wildcard(name) && std::ranges::find(columns, name) == columns.end();
  };
  std::set<std::string> named{csv.target(), csv.label(), ""};
  for (const auto& name : csv.features())
    if (!is_pattern(name))
      named.insert(name);
  std::vector<std::string> result;
  for (const auto& name : csv.features()) {
    if (!is_pattern(name)) {
      result.push_back(name);
      continue;
    }
    bool matched = false;
    for (const auto& column : columns)
      if (matches_glob(name, column)) {
        matched = true;
        if (!named.insert(column).second)
          continue;
        check_utf8(column, table);
        result.push_back(column);
      }
    if (!matched)
      throw input_error(std::string{table} + ": no column matches \"" + excerpt(name) + "\"; "
                        + glob_suggestion(name, columns));
  }
  for (const auto& name : csv.categories())
    if (std::ranges::find(result, name) == result.end())
      throw input_error("data.csv.categories: column \"" + excerpt(name)
                        + "\" is not in data.csv.features");
  if (result.empty())
    throw input_error(std::string{table}
                      + ": data.csv.features matches no column except the one to predict");
  return result;
}

} // namespace troupe
