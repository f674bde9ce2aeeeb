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
  /// What the operator should know about it.
  std::vector<std::string> notices;
};

/// Decides where a run of this job begins.
/// @param output the run's output directory; may be empty
/// @param wanted nothing: begin at the beginning. Empty: the newest complete checkpoint in the
/// output directory, or the beginning if it has none. Otherwise a checkpoint, a folder of them, or
/// an output directory, which must have a complete one.
/// @throws input_error when a checkpoint that was named is missing or damaged, or cannot be
/// continued by this job (fit_checkpoint); when the output directory has checkpoints from which the
/// run would not continue.
resume_choice choose_checkpoint(storage& from, const std::filesystem::path& output,
                                const std::optional<std::string>& wanted,
                                const job_context& context);

/// The text of metrics.jsonl when a run continues: from the old text the complete epochs and
/// earlier resumptions, then a line about this one.
std::string resumed_metrics(std::string_view old, const checkpoint& from);

} // namespace troupe
