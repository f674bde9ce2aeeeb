#include "actors/checkpoint/resume.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace troupe {

namespace {

/// The names of all checkpoints in a folder, including damaged ones. The newest comes first.
std::vector<std::string> names_in(storage& from, const std::filesystem::path& folder) {
  auto result = from.directories(folder);
  std::erase_if(result, [](auto& name) { return checkpoint_step(name) == 0; });
  std::ranges::sort(result, std::greater{}, [](auto& name) { return checkpoint_step(name); });
  return result;
}

/// The newest undamaged checkpoint in a folder.
std::optional<checkpoint_files> newest_in(storage& from, const std::filesystem::path& folder,
                                          std::vector<std::string>& notices) {
  for (auto& name : names_in(from, folder))
    try {
      return read_checkpoint(from, folder / name);
    } catch (const input_error& error) {
      notices.push_back("skipped a checkpoint that cannot be read: " + std::string{error.what()});
    }
  return std::nullopt;
}

checkpoint_files named(storage& from, const std::filesystem::path& wanted,
                       std::vector<std::string>& notices) {
  for (auto& folder : {checkpoint_folder(wanted), wanted}) {
    if (names_in(from, folder).empty())
      continue;
    if (auto found = newest_in(from, folder, notices))
      return std::move(*found);
    std::string text = "--resume=" + wanted.string() + ": no complete checkpoint there";
    for (auto& x : notices)
      text += "\n  " + x;
    throw input_error{text};
  }
  try {
    return read_checkpoint(from, wanted);
  } catch (const input_error& error) {
    throw input_error{"--resume=" + wanted.string()
                      + ": expected a checkpoint, a folder of checkpoints or an output directory: "
                      + error.what()};
  }
}

/// Throws input_error if the folder has an undamaged checkpoint after `step`. The run would
/// otherwise mix its own checkpoints with those of another run.
void refuse_newer(storage& from, const std::filesystem::path& folder, std::uint64_t step) {
  for (auto& name : names_in(from, folder)) {
    if (checkpoint_step(name) <= step)
      return;
    try {
      read_checkpoint(from, folder / name);
    } catch (const input_error&) {
      continue;
    }
    throw input_error{
      "the output directory has a newer checkpoint, " + (folder / name).string()
      + ": continue from that one (--resume), choose another directory with --out, or "
        "remove it"};
  }
}

std::string differences_text(const job_context& context, const checkpoint_manifest& x) {
  std::string result;
  for (auto& difference : differences(context.job, parse_job(x.job, "job")))
    result += (result.empty() ? "" : "; ") + difference;
  return result;
}

} // namespace

std::filesystem::path checkpoint_folder(const std::filesystem::path& output) {
  return output / "checkpoints";
}

resume_choice choose_checkpoint(storage& from, const std::filesystem::path& output,
                                const std::optional<std::string>& wanted,
                                const job_context& context) {
  resume_choice result;
  const auto own = output.empty() ? output : checkpoint_folder(output);
  if (!wanted) {
    if (!own.empty() && !names_in(from, own).empty())
      throw input_error{
        own.string()
        + " already has checkpoints: continue from them with --resume, choose another "
          "directory with --out, or remove them"};
    return result;
  }
  if (wanted->empty() && own.empty())
    throw input_error{"--resume: the job has no output directory to find a checkpoint in; give "
                      "one with --out, or name the checkpoint with --resume=DIR"};
  auto files =
    wanted->empty() ? newest_in(from, own, result.notices) : named(from, *wanted, result.notices);
  if (!files && !result.notices.empty()) {
    std::string text = "--resume: none of the checkpoints in " + own.string()
      + " can be read; choose another directory with --out, or remove them";
    for (auto& x : result.notices)
      text += "\n  " + x;
    throw input_error{text};
  }
  if (!files) {
    result.notices.push_back("there is no checkpoint in " + own.string()
                             + " yet: training starts from the beginning");
    return result;
  }
  result.from = std::make_shared<checkpoint>(fit_checkpoint(*files, context));
  const auto& x = result.from->manifest;
  if (!own.empty())
    refuse_newer(from, own, x.step);
  result.notices.push_back("continuing from " + files->directory.string() + ": step "
                           + std::to_string(x.step) + ", epoch " + std::to_string(x.cut.epoch + 1)
                           + " of " + std::to_string(context.job.epochs()) + ", "
                           + std::to_string(x.cut.samples()) + " samples of it left");
  if (context.fingerprint && x.fingerprint)
    if (const auto text =
          difference(*context.fingerprint, *x.fingerprint, "those of the checkpoint");
        !text.empty())
      result.notices.push_back(text + "; the run continues with the data here");
  if (const auto text = differences_text(context, x); !text.empty())
    result.notices.push_back("the job (here) differs from the job of the checkpoint (there): "
                             + text);
  return result;
}

std::string resumed_metrics(std::string_view old, const checkpoint& from) {
  using nlohmann::json;
  const auto& x = from.manifest;
  const auto kept = [&](const json& line) {
    const auto number = [&](const char* key) { return line.value(key, std::uint64_t{0}); };
    const auto event = line.value("event", "");
    return (event == "epoch" && number("epoch") <= x.cut.epoch)
      || ((event == "resume" || event == "evaluation") && number("step") <= x.step);
  };
  std::string result;
  while (!old.empty()) {
    const auto end = std::min(old.find('\n'), old.size());
    const auto text = old.substr(0, end);
    old.remove_prefix(std::min(end + 1, old.size()));
    // If the run was killed, the last line may be cut off. It is then left out.
    const auto line = json::parse(text, nullptr, false);
    try {
      if (line.is_object() && kept(line))
        result.append(text).push_back('\n');
    } catch (const json::exception&) {
      continue; // A field has an unexpected type, so this line is not from troupe.
    }
  }
  const nlohmann::ordered_json line{{"event", "resume"},
                                    {"step", x.step},
                                    {"epoch", x.cut.epoch + 1},
                                    {"samples", x.samples},
                                    {"checkpoint", from.directory.string()}};
  return result + line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

} // namespace troupe
