#pragma once

#include "actors/checkpoint/checkpoint.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Where a run keeps its checkpoints.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output);

/// Where a run begins.
struct resume_choice {
  /// Null: at the beginning.
  std::shared_ptr<const checkpoint> from;
  /// What the operator should know of it.
  std::vector<std::string> notices;
};

/// Decides where a run of this job begins.
/// @param output the run's output directory; may be empty
/// @param wanted nothing: at the beginning. Empty: at the newest whole checkpoint in the output
/// directory, or at the beginning where it has none. Otherwise a checkpoint, a folder of them, or
/// an output directory, which must have a whole one.
/// @throws input_error when a checkpoint that was named is missing or damaged, or cannot be
/// continued by this job (fit_checkpoint); when the output directory has checkpoints that the run
/// would not go on from.
resume_choice choose_checkpoint(storage& from, const std::filesystem::path& output,
                                const std::optional<std::string>& wanted,
                                const job_context& context);

/// What stands in metrics.jsonl when a run goes on: of the old text the epochs that were complete
/// and earlier resumptions, and a line about this one.
std::string resumed_metrics(std::string_view old, const checkpoint& from);

} // namespace troupe
