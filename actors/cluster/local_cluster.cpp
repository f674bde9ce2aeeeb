#include "actors/cluster/local_cluster.hpp"

#include "actors/checkpoint/resume.hpp"
#include "kernels/error.hpp"

namespace troupe {

std::vector<task_name> tasks_of(std::uint32_t workers, std::uint32_t ps) {
  std::vector<task_name> result;
  for (std::uint32_t i = 0; i < workers; ++i)
    result.push_back({job_kind::worker, i});
  for (std::uint32_t i = 0; i < ps; ++i)
    result.push_back({job_kind::ps, i});
  return result;
}

void open_output(coordinator_setup& setup, const std::optional<std::string>& resume) {
  const bool written = !setup.output.empty();
  if (setup.context->job.has_checkpoint() && !written)
    throw input_error{"checkpoint: there is no output directory to write checkpoints to; set "
                      "output, or --out"};
  if (written) {
    setup.files->prepare(setup.output);
    setup.files->lock(setup.output);
  }
  auto begin = choose_checkpoint(*setup.files, setup.output, resume, *setup.context);
  setup.resume = std::move(begin.from);
  setup.notices = std::move(begin.notices);
  if (written)
    setup.files->tidy(checkpoint_folder(setup.output));
}

node_options local_cluster(coordinator_setup setup, std::uint32_t workers, std::uint32_t ps) {
  node_options result;
  result.tasks = {coordinator_task};
  setup.tasks.clear();
  for (auto& task : tasks_of(workers, ps)) {
    result.tasks.push_back(task);
    setup.tasks.push_back({task, ""});
  }
  result.source = [data = setup.data](const proto::Job&) { return data; };
  result.coordinator = std::move(setup);
  return result;
}

} // namespace troupe
