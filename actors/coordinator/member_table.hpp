#pragma once

#include "actors/model/job_context.hpp"
#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A task that the cluster file names.
struct expected_task {
  task_name task;
  /// The address of the task's node in the cluster file. It is shown to the operator while this
  /// node is missing.
  std::string address;
};

/// A task that has joined, and its address.
struct joined_task {
  std::uint64_t incarnation = 0;
  std::string address;
};

/// The tasks that a run expects, and the tasks that have joined. This is a plain object, not an
/// actor.
class member_table {
public:
  /// @param version the coordinator's version of troupe; every node must have the same version
  member_table(std::vector<expected_task> expected, std::shared_ptr<const job_context> context,
               std::string version);

  /// The reason why this task may not join, as text for its operator; empty if it may join. An
  /// evaluator may join even if the cluster file does not name it, because no node has to find it.
  std::optional<std::string> refusal(const proto::Join& x, const task_name& task) const;

  /// True if another start of this task (another incarnation) has joined.
  bool has_other_start(const task_name& task, std::uint64_t incarnation) const;

  /// Adds a task. Returns false if this task has already joined with the same incarnation.
  bool join(const task_name& task, std::uint64_t incarnation, const std::string& address);
  void leave(const task_name& task) { joined_.erase(task); }

  bool expects(const task_name& task) const;
  /// @param but_evaluator if true, the evaluator need not have joined
  bool all_joined(bool but_evaluator = false) const;
  std::size_t expected_of(job_kind job) const;
  const std::map<task_name, joined_task>& joined() const noexcept { return joined_; }

  /// The tasks that have not joined, with their addresses, such as "worker/0 (host:7001), ps/0".
  std::string missing() const;

private:
  std::vector<expected_task> expected_;
  std::shared_ptr<const job_context> context_;
  std::string version_;
  std::map<task_name, joined_task> joined_;
};

} // namespace troupe
