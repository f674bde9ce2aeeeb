#pragma once

#include "actors/checkpoint/checkpoint.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The folder for the checkpoints of a run.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output);

/// The starting point of a run.
struct resume_choice {
  /// The checkpoint to continue from. If it is null, the run starts at the beginning.
  std::shared_ptr<const checkpoint> from;
  /// Notices about this choice for the operator.
  std::vector<std::string> notices;
};

/// Decides where a run of this job starts.
/// @param output the run's output directory; may be empty
/// @param wanted if there is no value, the run starts at the beginning. If the text is empty, the
/// run starts from the newest complete checkpoint in the output directory; if there is none, it
/// starts at the beginning. Any other text is the path of a checkpoint, of a folder of checkpoints,
/// or of an output directory. It must contain a complete checkpoint.
/// @throws input_error if the requested checkpoint is missing or damaged, or if this job cannot
/// continue from it (fit_checkpoint); also if the output directory has a newer checkpoint, or has
/// checkpoints although the run would start at the beginning.
resume_choice choose_checkpoint(storage& from, const std::filesystem::path& output,
                                const std::optional<std::string>& wanted,
                                const job_context& context);

/// Returns the new text of metrics.jsonl for a run that continues from a checkpoint. Of the old
/// text, it keeps the lines for complete epochs, and the lines for evaluations and resumptions up
/// to the checkpoint's step. A line for this resumption follows.
std::string resumed_metrics(std::string_view old, const checkpoint& from);

} // namespace troupe
