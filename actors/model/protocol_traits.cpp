#include "actors/model/protocol_traits.hpp"

#include "actors/model/optimizer_builder.hpp"
#include "actors/model/problem_list.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Whether every_steps of a field falls on steps after which all replicas are equal.
void require_multiple(const proto::Job& job, std::uint32_t steps, const std::string& field,
                      problem_list& problems) {
  const auto every = job.local_sgd().every();
  problems.require(every == 0 || steps % every == 0, field,
                   "the replicas are equal only after each " + std::to_string(every)
                     + " steps (local_sgd.every); expected a multiple of that, got "
                     + std::to_string(steps));
}

void check_local_sgd(const proto::Job& job, problem_list& problems) {
  problems.require(job.local_sgd().every() >= 1, "local_sgd.every",
                   "0; expected the number of steps between two averages, at least 1");
  if (job.has_checkpoint())
    require_multiple(job, job.checkpoint().every_steps(), "checkpoint.every_steps", problems);
  if (job.has_evaluate())
    require_multiple(job, job.evaluate().every_steps(), "evaluate.every_steps", problems);
}

void check_sync_ps(const proto::Job& job, problem_list& problems) {
  const auto& how = job.sync_ps();
  problems.require(how.late() == proto::SyncPs::REJECT || how.late() == proto::SyncPs::REQUEUE,
                   "sync_ps.late", "expected REJECT or REQUEUE");
  problems.require(!how.has_late() || how.backup_workers() > 0, "sync_ps.late",
                   "no gradient is late without backup workers; leave it out, or set "
                   "sync_ps.backup_workers");
}

void check_backup_workers(const proto::Job& job, std::size_t workers, problem_list& problems) {
  const std::size_t backup = job.sync_ps().backup_workers();
  problems.require(backup < workers, "sync_ps.backup_workers",
                   std::to_string(backup) + " of " + std::to_string(workers)
                     + (workers == 1 ? " worker" : " workers")
                     + " would leave none for a step; expected less than the number of workers");
}

std::string describe_sync_ps(const proto::Job& job) {
  const auto backup = job.sync_ps().backup_workers();
  if (backup == 0)
    return "the gradients of a step are added up, and applied";
  return "the gradients of a step are added up, and applied, without the last "
    + (backup == 1 ? std::string{"one"} : std::to_string(backup)) + ", whose samples are "
    + (job.sync_ps().late() == proto::SyncPs::REJECT ? "not trained in this epoch"
                                                     : "trained again");
}

// The workers that a step is made without do not go in step.
void adapt_sync_ps(const proto::Job& job, protocol_traits& row) {
  const bool backup = job.sync_ps().backup_workers() > 0;
  row.in_step = !backup;
  row.tells_idle = backup;
}

// A moment per worker instead of one; the versions that workers read; for DC, the squares and the
// corrected gradient.
std::size_t async_shard_state(const proto::Job& job, std::size_t workers) {
  if (workers < 2)
    return 0;
  switch (job.async_ps().compensation()) {
  case proto::AsyncPs::AUTO:
    return build_optimizer(job.optimizer()).moment_slot() ? workers - 1 : 0;
  case proto::AsyncPs::GAP_AWARE:
    return workers;
  case proto::AsyncPs::DC:
    return workers + 2;
  default:
    return 0;
  }
}

std::string list(const std::vector<std::string>& names) {
  std::string result;
  for (auto& x : names)
    result += (result.empty() ? "" : ", ") + x;
  return result;
}

/// Why there is no row for a job.
std::string unknown(const proto::Job& job, std::span<const protocol_traits> own) {
  if (job.protocol() != proto::CUSTOM)
    return "expected one of " + list(protocol_names(own));
  if (own.empty())
    return "CUSTOM, but this program adds no protocol of its own; expected one of "
      + list(protocol_names());
  std::vector<std::string> known;
  for (auto& x : own)
    known.push_back(x.name);
  const auto& name = job.custom_protocol().name();
  return name.empty()
    ? "CUSTOM needs custom_protocol.name; expected one of " + list(known)
    : "this program adds no protocol \"" + name + "\"; " + suggestion(name, known);
}

} // namespace

std::span<const protocol_traits> builtin_traits() {
  static const std::vector<protocol_traits> rows{
    {
      .id = proto::ASYNC_PS,
      .name = "async_ps",
      .weights = weights_at::shards,
      .in_step = false,
      .decided_by = "parameter server",
      .exchange = [](const proto::Job&) { return "each gradient is applied when it arrives"; },
      .settings = "async_ps",
      .shard_state = async_shard_state,
    },
    {
      .id = proto::SYNC_PS,
      .name = "sync_ps",
      .weights = weights_at::shards,
      .in_step = true,
      .needs_all = true,
      .decided_by = "parameter server",
      .exchange = describe_sync_ps,
      .settings = "sync_ps",
      .validate = check_sync_ps,
      .validate_workers = check_backup_workers,
      .adapt = adapt_sync_ps,
      .step_gradients =
        [](const proto::Job& job, std::size_t workers) {
          return workers - job.sync_ps().backup_workers();
        },
      .memory = {.worker = 0, .shard = 1},
    },
    {
      .id = proto::RING,
      .name = "ring",
      .weights = weights_at::workers,
      .in_step = true,
      .decided_by = "ring member",
      .exchange = [](const proto::Job&) { return "a ring adds up the gradients of each step"; },
      .memory = {.worker = 1, .shard = 0},
    },
    {
      .id = proto::LOCAL_SGD,
      .name = "local_sgd",
      .weights = weights_at::workers,
      .in_step = true,
      .decided_by = "worker's replica",
      .exchange =
        [](const proto::Job& job) {
          const auto every = job.local_sgd().every();
          return "replicas are averaged after " + std::string{every == 1 ? "each step" : "every "}
          + (every == 1 ? "" : std::to_string(every) + " steps");
        },
      .settings = "local_sgd",
      .validate = check_local_sgd,
      .steps_between_waits = [](const proto::Job& job) { return job.local_sgd().every(); },
      .memory = {.worker = 2, .shard = 0},
    },
  };
  return rows;
}

std::vector<std::string> protocol_names(std::span<const protocol_traits> own) {
  std::vector<std::string> result;
  for (const auto rows : {builtin_traits(), own})
    for (auto& x : rows)
      result.push_back(x.name);
  return result;
}

const protocol_traits* find_traits(const proto::Job& job, std::span<const protocol_traits> own) {
  if (job.protocol() == proto::CUSTOM) {
    const auto i = std::ranges::find(own, job.custom_protocol().name(), &protocol_traits::name);
    return i == own.end() ? nullptr : &*i;
  }
  const auto rows = builtin_traits();
  const auto i = std::ranges::find(rows, job.protocol(), &protocol_traits::id);
  return i == rows.end() ? nullptr : &*i;
}

const protocol_traits& traits_of(const proto::Job& job, std::span<const protocol_traits> own) {
  const auto* found = find_traits(job, own);
  if (found == nullptr)
    throw input_error{"protocol: " + unknown(job, own)};
  return *found;
}

protocol_traits adapted_traits(const proto::Job& job, std::span<const protocol_traits> own) {
  auto result = traits_of(job, own);
  if (result.adapt)
    result.adapt(job, result);
  result.needs_all = result.needs_all || result.in_step;
  return result;
}

void check_workers(const proto::Job& job, std::size_t workers,
                   std::span<const protocol_traits> own) {
  const auto& row = traits_of(job, own);
  problem_list problems;
  if (row.validate_workers)
    row.validate_workers(job, workers, problems);
  problems.throw_if_any();
}

void check_protocol(const proto::Job& job, std::span<const protocol_traits> own,
                    problem_list& problems) {
  const auto* found = find_traits(job, own);
  if (found == nullptr)
    problems.add("protocol", unknown(job, own));
  const auto name = proto::Protocol_Name(job.protocol());
  const auto refuse = [&](const std::string& field, const std::string& protocol) {
    problems.add(field,
                 "only protocol " + protocol + " reads it, and the job's protocol is " + name
                   + "; leave it out, or set protocol: " + protocol);
  };
  for (auto& x : builtin_traits()) {
    const auto* field = proto::Job::descriptor()->FindFieldByName(x.settings);
    if (&x != found && field != nullptr && job.GetReflection()->HasField(job, field))
      refuse(x.settings, proto::Protocol_Name(x.id));
  }
  if (job.has_custom_protocol() && job.protocol() != proto::CUSTOM)
    refuse("custom_protocol", "CUSTOM");
  if (found != nullptr && found->validate)
    found->validate(job, problems);
}

std::string custom_parameter(const proto::Job& job, const std::string& name) {
  const auto& all = job.custom_protocol().parameter();
  const auto i = std::ranges::find(all, name, &proto::CustomParameter::name);
  return i == all.end() ? std::string{} : i->value();
}

} // namespace troupe
