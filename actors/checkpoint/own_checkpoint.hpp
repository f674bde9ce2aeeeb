#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/checkpoint/resume.hpp"

#include <filesystem>
#include <system_error>

namespace troupe {

/// True if the checkpoint `from` is in this output directory. The run that continues from it then
/// also continues metrics.jsonl in this directory. Different spellings of a path, for example with
/// a slash at the end, count as equal.
inline bool is_own_checkpoint(const checkpoint& from, const std::filesystem::path& output) {
  const auto plain = [](const std::filesystem::path& x) {
    std::error_code error;
    auto result = std::filesystem::weakly_canonical(std::filesystem::absolute(x, error), error);
    if (error)
      result = x.lexically_normal();
    return result.has_filename() ? result : result.parent_path();
  };
  return plain(from.directory).parent_path() == plain(checkpoint_folder(output));
}

} // namespace troupe
