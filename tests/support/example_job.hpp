#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe::test {

/// The folder of the real data, or empty.
inline std::string data_folder() {
  const char* folder = std::getenv("TROUPE_DATA");
  return folder && std::filesystem::exists(std::filesystem::path{folder} / "advertising.csv")
    ? folder
    : "";
}

/// An example of apps/examples, with changes as of --set.
inline proto::Job example_job(const std::string& name,
                              const std::vector<std::string>& changes = {}) {
  const std::filesystem::path root{std::getenv("TROUPE_SOURCE_DIR")};
  auto result = load_job(root / "apps" / "examples" / (name + ".textproto"));
  for (auto& x : changes)
    apply_override(result, x);
  validate(result);
  return result;
}

} // namespace troupe::test
