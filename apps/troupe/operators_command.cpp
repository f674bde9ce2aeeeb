#include "actors/model/onnx/importer.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"

#include <fmt/format.h>

#include <string_view>

namespace troupe {

int print_operators() {
  std::string_view kind;
  for (const auto& row : onnx_operator_table()) {
    if (row.kind != kind)
      fmt::print("{}| {} | operator sets | limits |\n|---|---|---|\n", kind.empty() ? "" : "\n",
                 row.kind);
    kind = row.kind;
    fmt::print("| `{}` | {} | {} |\n", row.name,
               row.since == 0 ? "-" : fmt::format("{} to {}", row.since, newest_onnx_operators),
               row.limits);
  }
  return exit_done;
}

} // namespace troupe
