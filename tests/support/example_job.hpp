#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"
#include "tests/support/folders.hpp"

#include <string>
#include <vector>

namespace troupe::test {

/// Loads the job of an example in apps/examples. `changes` are like arguments of --set.
inline proto::Job example_job(const std::string& name,
                              const std::vector<std::string>& changes = {}) {
  auto result = load_job(source_folder() / "apps" / "examples" / (name + ".textproto"));
  for (auto& x : changes)
    apply_override(result, x);
  validate(result);
  return result;
}

} // namespace troupe::test
