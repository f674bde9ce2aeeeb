#include "actors/coordinator/member_table.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <algorithm>

namespace troupe {

member_table::member_table(std::vector<expected_task> expected,
                           std::shared_ptr<const job_context> context, std::string version)
  : expected_(std::move(expected)), context_(std::move(context)), version_(std::move(version)) {}

bool member_table::expects(const task_name& task) const {
  return std::ranges::find(expected_, task, &expected_task::task) != expected_.end();
}

bool member_table::all_joined(bool but_evaluator) const {
  return std::ranges::all_of(expected_, [&](auto& x) {
    return joined_.contains(x.task) || (but_evaluator && x.task.job == job_kind::evaluator);
  });
}

std::size_t member_table::expected_of(job_kind job) const {
  return static_cast<std::size_t>(
    std::ranges::count_if(expected_, [job](auto& x) { return x.task.job == job; }));
}

std::optional<std::string> member_table::refusal(const proto::Join& x,
                                                 const task_name& task) const {
  const auto name = to_string(task);
  if (!expects(task) && task != task_name{job_kind::evaluator, 0})
    return name + " is not in the cluster of this coordinator";
  if (x.version() != version_)
    return name + " runs troupe " + x.version() + ", the coordinator " + version_
      + ": install the same version on all nodes";
  if (has_other_start(task, x.incarnation()))
    return name + " has joined already, from " + joined_.at(task).address
      + ": was it started twice, or is its --task wrong?";
  if (x.job_hash().empty() || x.job_hash() == context_->hash)
    return std::nullopt;
  std::string difference;
  try {
    difference = first_difference(parse_job(x.job_text(), name), context_->job);
  } catch (const input_error& error) {
    difference = error.what();
  }
  return name + " was given another job (hash " + x.job_hash().substr(0, 12)
    + ", the coordinator's " + context_->hash.substr(0, 12) + "): " + difference
    + ". Leave out --job on nodes: the coordinator sends its own";
}

bool member_table::has_other_start(const task_name& task, std::uint64_t incarnation) const {
  const auto i = joined_.find(task);
  return i != joined_.end() && i->second.incarnation != incarnation;
}

bool member_table::join(const task_name& task, std::uint64_t incarnation,
                        const std::string& address) {
  return joined_.emplace(task, joined_task{incarnation, address}).second;
}

std::string member_table::missing() const {
  std::string result;
  for (auto& x : expected_)
    if (!joined_.contains(x.task))
      result += (result.empty() ? "" : ", ") + to_string(x.task)
        + (x.address.empty() ? "" : " (" + x.address + ")");
  return result;
}

} // namespace troupe
