#pragma once

#include "messages/proto/job.pb.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// True if a name in `csv.features` has a wildcard (`*` or `?`), so that the columns depend on the
/// table.
bool has_wildcards(const proto::Csv& csv) noexcept;

/// The columns to learn from, in order. A name with a wildcard stands for all columns that it
/// matches, in their order in the table, except those that the job names elsewhere, and columns
/// without a name (such as the index that pandas writes). A column whose own name has such a
/// character can be named, too.
/// @param columns the columns of the table
/// @param table the name of the table in errors
/// @throws input_error if a name with a wildcard matches no column, or a column whose name is not
/// UTF-8, or if a column of categories is not among the result
std::vector<std::string> feature_columns(const proto::Csv& csv,
                                         std::span<const std::string> columns,
                                         std::string_view table);

} // namespace troupe
