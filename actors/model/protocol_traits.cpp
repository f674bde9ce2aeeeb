#include "actors/model/protocol_traits.hpp"

#include "actors/model/layer_list.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "actors/model/problem_list.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// Requires that `steps`, the every_steps of a field, is a multiple of local_sgd.every. The
/// replicas are equal only after these steps.
void require_multiple(const proto::Job& job, std::uint32_t steps, const std::string& field,
                      problem_list& problems) {
  const auto every = job.local_sgd().every();
  problems.require(every == 0 || steps % every == 0, field,
                   "the replicas are equal only after each " + std::to_string(every)
                     + " steps (local_sgd.every); expected a multiple of that, got "
                     + std::to_string(steps));
}

void check_outer(const proto::OuterOptimizer& x, problem_list& problems) {
  const std::string field = "local_sgd.outer.";
  problems.require(x.kind() != proto::OuterOptimizer::KIND_UNSET, field + "kind",
                   "expected SGD, MOMENTUM or NESTEROV");
  problems.require(x.rate() > 0 && std::isfinite(x.rate()), field + "rate",
                   number_text(x.rate()) + "; expected a number above 0, such as 0.7");
  problems.require(x.momentum() >= 0 && x.momentum() < 1, field + "momentum",
                   number_text(x.momentum())
                     + "; expected at least 0 and less than 1, such as 0.9");
  problems.require(!x.has_momentum() || x.kind() != proto::OuterOptimizer::SGD, field + "momentum",
                   "SGD has none; leave it out, or set kind: MOMENTUM or NESTEROV");
}

void check_fragments(const proto::LocalSgd& x, problem_list& problems) {
  problems.require(x.fragments() >= 1 && x.fragments() <= std::max(x.every(), 1U),
                   "local_sgd.fragments",
                   std::to_string(x.fragments())
                     + "; each part has its own step between two averages of the same part, so "
                       "expected at least 1 and at most local_sgd.every, which is "
                     + std::to_string(x.every()));
}

void check_local_sgd(const proto::Job& job, problem_list& problems) {
  problems.require(!job.has_moving_average(), "moving_average",
                   "the workers of LOCAL_SGD have different weights between two averages; leave it "
                   "out: their averages are smooth already");
  if (job.local_sgd().has_outer())
    check_outer(job.local_sgd().outer(), problems);
  problems.require(job.local_sgd().every() >= 1, "local_sgd.every",
                   "0; expected the number of steps between two averages, at least 1");
  check_fragments(job.local_sgd(), problems);
  const auto behind = job.local_sgd().behind();
  problems.require(behind != proto::LocalSgd::BEHIND_UNSET, "local_sgd.behind",
                   "expected WAIT or CONTRIBUTE");
  problems.require(behind != proto::LocalSgd::CONTRIBUTE || job.local_sgd().fragments() <= 1,
                   "local_sgd.fragments",
                   "with local_sgd.behind: CONTRIBUTE workers take different numbers of steps, but "
                   "all average a part after the same step; leave it out, or set "
                   "local_sgd.behind: WAIT");
  if (job.has_checkpoint())
    require_multiple(job, job.checkpoint().every_steps(), "checkpoint.every_steps", problems);
  if (job.has_evaluate())
    require_multiple(job, job.evaluate().every_steps(), "evaluate.every_steps", problems);
}

void check_hogwild(const proto::Job& job, problem_list& problems) {
  const auto& name = proto::OptimizerKind_Name(job.optimizer().kind());
  problems.require(job.optimizer().kind() == proto::SGD, "optimizer.kind",
                   name
                     + ", but HOGWILD workers share the weights, and no optimizer state; "
                       "expected SGD");
  for (const auto& text : job.device())
    problems.require(
      !text.starts_with("/job:ps/") || text.find("/device:GPU:") == std::string::npos, "device",
      "\"" + text
        + "\", but HOGWILD workers share the weights in the host's memory; leave "
          "it out");
}

/// Largest pull_ahead.
constexpr std::uint32_t most_ahead = 8;

/// Largest number of gradients that can form one update.
constexpr std::uint32_t most_buffered = 1024;

void check_async_ps(const proto::Job& job, problem_list& problems) {
  const auto buffer = job.async_ps().buffer();
  const auto how = job.async_ps().compensation();
  problems.require(buffer >= 1 && buffer <= most_buffered, "async_ps.buffer",
                   std::to_string(buffer) + "; expected a number of gradients from 1 to "
                     + std::to_string(most_buffered));
  problems.require(buffer <= 1 || how == proto::AsyncPs::AUTO || how == proto::AsyncPs::NONE,
                   "async_ps.buffer",
                   proto::AsyncPs::Compensation_Name(how)
                     + " makes an update of each gradient; leave buffer out, or set "
                       "async_ps.compensation: AUTO");
}

std::string describe_async_ps(const proto::Job& job) {
  const auto buffer = job.async_ps().buffer();
  return buffer <= 1 ? "each gradient is applied when it arrives"
                     : "the mean of each " + std::to_string(buffer)
      + " gradients is applied when the last of them arrives";
}

void adapt_async_ps(const proto::Job& job, protocol_traits& row) {
  row.holds_back = job.async_ps().buffer() > 1;
  // With max_staleness, a gradient may be rejected. Its batch is then trained again before the next
  // batch. So a worker cannot compute the next gradient before it knows the decision.
  row.overlaps = job.pull_ahead() > 0 && !job.async_ps().has_max_staleness();
}

void check_sync_ps(const proto::Job& job, problem_list& problems) {
  const auto& how = job.sync_ps();
  problems.require(how.late() == proto::SyncPs::REJECT || how.late() == proto::SyncPs::REQUEUE,
                   "sync_ps.late", "expected REJECT or REQUEUE");
  problems.require(!how.has_late() || how.backup_workers() > 0, "sync_ps.late",
                   "without backup workers, no gradient is late; leave it out, or set "
                   "sync_ps.backup_workers");
}

void check_backup_workers(const proto::Job& job, std::size_t workers, problem_list& problems) {
  const std::size_t backup = job.sync_ps().backup_workers();
  problems.require(
    backup < workers, "sync_ps.backup_workers",
    std::to_string(backup) + " of " + std::to_string(workers)
      + (workers == 1 ? " worker" : " workers")
      + " would leave no worker for a step; expected less than the number of workers");
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

// With backup workers, workers are not in step (protocol_traits::in_step), because a step does not
// wait for the slowest workers.
void adapt_sync_ps(const proto::Job& job, protocol_traits& row) {
  const bool backup = job.sync_ps().backup_workers() > 0;
  row.in_step = row.sums_over_workers = !backup;
  row.needs_all = !backup;
  row.tells_idle = backup;
  // To update weights in pieces, each piece must depend only on the same piece of the gradients.
  // Clipping by norm and LAMB need norms over more than a piece. With backup workers, the gradients
  // of a step are not known before shard 0 has chosen them.
  const auto& rule = job.optimizer();
  row.in_pieces = !backup && rule.clip_norm() == 0 && rule.kind() != proto::LAMB;
}

// The number of additional vectors on a shard:
// - with a buffer: the sum of the buffered gradients;
// - with AUTO: a moment for each worker (several with Job.pull_ahead), instead of one for all;
// - with GAP_AWARE: the versions of the weights that the workers have read;
// - with DC: these versions, the squares of the gradients, and the corrected gradient.
std::size_t async_shard_state(const proto::Job& job, std::size_t workers) {
  if (job.async_ps().buffer() > 1)
    return 1;
  const auto chains = workers * (1 + job.pull_ahead());
  if (chains < 2)
    return 0;
  switch (job.async_ps().compensation()) {
  case proto::AsyncPs::AUTO:
    return build_optimizer(job.optimizer()).moment_slot() ? chains - 1 : 0;
  case proto::AsyncPs::GAP_AWARE:
    return chains;
  case proto::AsyncPs::DC:
    return chains + 2;
  default:
    return 0;
  }
}

std::string text_of_local_sgd(const proto::Job& job) {
  const auto every = job.local_sgd().every();
  const auto fragments = job.local_sgd().fragments();
  auto result = every == 1
    ? std::string{"replicas are averaged after each step"}
    : "replicas are averaged after every " + std::to_string(every) + " steps";
  if (fragments > 1)
    result += ", in " + std::to_string(fragments) + " parts, one after the other";
  if (job.local_sgd().behind() == proto::LocalSgd::CONTRIBUTE)
    result += " of the fastest worker";
  if (!job.local_sgd().has_outer())
    return result;
  const auto& x = job.local_sgd().outer();
  const auto momentum =
    x.kind() == proto::OuterOptimizer::SGD ? "" : ", momentum " + number_text(x.momentum());
  return result + ", followed by an outer step of " + proto::OuterOptimizer::Kind_Name(x.kind())
    + ", rate " + number_text(x.rate()) + momentum;
}

// With `behind: CONTRIBUTE`, fast workers make more steps than slow workers. With any setting, the
// run needs all workers, because they hold replicas.
void adapt_local_sgd(const proto::Job& job, protocol_traits& row) {
  row.in_step = job.local_sgd().behind() != proto::LocalSgd::CONTRIBUTE;
  row.needs_all = true;
  // With CONTRIBUTE, the first worker averages the replicas once more at the end.
  row.first_reports_alone = !row.in_step;
}

void check_ring(const proto::Job& job, problem_list& problems) {
  if (!job.ring().shard_optimizer())
    return;
  const std::string remedy = "; leave ring.shard_optimizer out, or ";
  problems.require(job.optimizer().kind() != proto::LAMB, "ring.shard_optimizer",
                   "no worker holds a whole tensor's state, which LAMB needs for its norms" + remedy
                     + "set optimizer.kind: ADAMW");
  problems.require(job.optimizer().clip_norm() == 0, "ring.shard_optimizer",
                   "no worker has the whole gradient, which optimizer.clip_norm needs for its norm"
                     + remedy + "set optimizer.clip_value instead of clip_norm");
  problems.require(job.exchange_precision() == proto::FLOAT32, "ring.shard_optimizer",
                   "workers then exchange weights, and exchange_precision: BFLOAT16 would round "
                   "them"
                     + remedy + "leave out exchange_precision");
}

void check_ssp(const proto::Job& job, problem_list& problems) {
  const auto bound = job.ssp().staleness();
  problems.require(job.pull_ahead() <= bound, "pull_ahead",
                   std::to_string(job.pull_ahead())
                     + ", but with ssp.staleness: " + std::to_string(bound)
                     + " a step needs all updates that are more than " + std::to_string(bound)
                     + " steps older, also the worker's own; expected at most "
                     + std::to_string(bound) + ", or a larger ssp.staleness");
}

// Like async_shard_state. With a staleness bound of 0, it also counts the versions of the weights
// that slower workers have not read yet.
std::size_t ssp_shard_state(const proto::Job& job, std::size_t workers) {
  return async_shard_state(job, workers) + (job.ssp().staleness() == 0 ? 2 : 0);
}

std::string list(const std::vector<std::string>& names) {
  std::string result;
  for (auto& x : names)
    result += (result.empty() ? "" : ", ") + x;
  return result;
}

void check_placement(const proto::Job& job, bool no_shards, problem_list& problems) {
  problems.require(job.placement() != proto::PLACEMENT_UNSET, "placement",
                   "expected BY_BYTES or BY_TENSOR");
  problems.require(job.placement() != proto::ROUND_ROBIN, "placement",
                   "ROUND_ROBIN: each parameter server holds one range of the parameters, in the "
                   "order of the layers; use BY_TENSOR, which keeps tensors whole and divides them "
                   "more evenly");
  problems.require(!job.has_placement() || !no_shards, "placement",
                   proto::Protocol_Name(job.protocol())
                     + " has no parameter servers to place parameters on; leave it out, or choose "
                       "another protocol");
  const bool cut = job.has_placement() && job.placement() == proto::BY_BYTES;
  problems.require(!cut || job.optimizer().kind() != proto::LAMB, "placement",
                   "BY_BYTES cuts tensors, but LAMB needs their norms; leave it out, or set "
                   "placement: BY_TENSOR");
}

void check_pull_ahead(const proto::Job& job, const protocol_traits& row, problem_list& problems) {
  const auto ahead = job.pull_ahead();
  if (ahead == 0)
    return;
  if (row.most_ahead == 0) {
    problems.add("pull_ahead",
                 proto::Protocol_Name(job.protocol())
                   + " does not pull weights while it computes; leave it out, or set protocol: "
                     "ASYNC_PS or SSP");
    return;
  }
  problems.require(
    ahead <= row.most_ahead, "pull_ahead",
    std::to_string(ahead) + "; expected at most " + std::to_string(row.most_ahead)
      + ": each step ahead takes memory for one more version of the weights per worker, "
        "and makes gradients more stale");
}

/// Checks layers that normalize over all workers. They need all workers in the same step.
void check_synchronized_layers(const proto::Job& job, const protocol_traits& row,
                               problem_list& problems) {
  // Problems of the list of layers are ignored here, because the check of the model reports them.
  problem_list of_layers;
  const auto layers = list_layers(job.model(), of_layers);
  if (row.sums_over_workers || !of_layers.empty())
    return;
  for (auto& x : layers)
    problems.require(!x.layer->batch_norm().sync(), x.path + ".batch_norm.sync",
                     "the workers of " + proto::Protocol_Name(job.protocol())
                       + (job.sync_ps().backup_workers() > 0 ? " with backup workers" : "")
                       + " do not wait for each other within a step, so they cannot normalize over "
                         "all batches; leave sync out, or set protocol: RING or SYNC_PS"
                       + (job.sync_ps().backup_workers() > 0 ? " without backup workers" : "")
                       + at_line(*x.layer));
}

/// Explains why there are no traits for a job.
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
      .exchanges_bfloat16 = true,
      .most_ahead = most_ahead,
      .decided_by = "parameter server",
      .exchange = describe_async_ps,
      .settings = "async_ps",
      .validate = check_async_ps,
      .adapt = adapt_async_ps,
      .step_gradients = [](const proto::Job& job, std::size_t) -> std::size_t {
        return job.async_ps().buffer();
      },
      .shard_state = async_shard_state,
    },
    {
      .id = proto::SYNC_PS,
      .name = "sync_ps",
      .weights = weights_at::shards,
      .in_step = true,
      .needs_all = true,
      .sums_over_workers = true,
      .exchanges_bfloat16 = true,
      .decided_by = "parameter server",
      .exchange = describe_sync_ps,
      .settings = "sync_ps",
      .validate = check_sync_ps,
      .validate_workers = check_backup_workers,
      .adapt = adapt_sync_ps,
      .step_gradients =
        [](const proto::Job& job, std::size_t workers) {
          // All others may be lost, or may have left.
          const std::size_t backup = job.sync_ps().backup_workers();
          return workers > backup ? workers - backup : 1;
        },
      .memory = {.worker = 0, .shard = 1},
    },
    {
      .id = proto::RING,
      .name = "ring",
      .weights = weights_at::workers,
      .in_step = true,
      .sums_over_workers = true,
      .replica_on_gpu = true,
      .adds_on_gpus = true,
      .exchanges_bfloat16 = true,
      .decided_by = "ring member",
      .exchange =
        [](const proto::Job& job) {
          return std::string{"a ring adds up the gradients of each step"}
          + (job.ring().shard_optimizer() ? "; each worker updates a part, and a ring "
                                            "distributes the weights"
                                          : "");
        },
      .settings = "ring",
      .validate = check_ring,
      .memory = {.worker = 1, .shard = 0},
    },
    {
      .id = proto::LOCAL_SGD,
      .name = "local_sgd",
      .weights = weights_at::workers,
      .in_step = true,
      .replica_on_gpu = true,
      .decided_by = "worker's replica",
      .exchange = text_of_local_sgd,
      .settings = "local_sgd",
      .validate = check_local_sgd,
      .adapt = adapt_local_sgd,
      .steps_between_waits =
        [](const proto::Job& job) {
          return job.local_sgd().every() / std::max(job.local_sgd().fragments(), 1U);
        },
      .memory = {.worker = 2, .shard = 0},
    },
    {
      .id = proto::HOGWILD,
      .name = "hogwild",
      .weights = weights_at::shards,
      .in_step = false,
      .one_process = true,
      .decided_by = "parameter server",
      .exchange =
        [](const proto::Job&) {
          return "workers, all in the same process, write into the weights without waiting";
        },
      .validate = check_hogwild,
      .memory = {.worker = 2, .shard = 0},
      // One vector: the weights, which all workers write.
      .shard_state = [](const proto::Job&, std::size_t) -> std::size_t { return 1; },
    },
    {
      .id = proto::SSP,
      .name = "ssp",
      .weights = weights_at::shards,
      .in_step = false,
      .exchanges_bfloat16 = true,
      .most_ahead = most_ahead,
      .decided_by = "parameter server",
      .exchange =
        [](const proto::Job& job) {
          const auto most = job.ssp().staleness();
          return "each gradient is applied when it arrives; no worker is more than "
            + std::to_string(most) + (most == 1 ? " step" : " steps") + " ahead of the slowest";
        },
      .settings = "ssp",
      .validate = check_ssp,
      .shard_state = ssp_shard_state,
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
  problems.require(!job.has_elastic() || job.elastic().min_workers() <= workers,
                   "elastic.min_workers",
                   std::to_string(job.elastic().min_workers()) + ", and the cluster has "
                     + std::to_string(workers) + "; expected at most that many");
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
  if (found != nullptr) {
    check_synchronized_layers(job, adapted_traits(job, own), problems);
    check_pull_ahead(job, *found, problems);
    problems.require(job.exchange_precision() == proto::FLOAT32 || found->exchanges_bfloat16,
                     "exchange_precision",
                     "protocol " + name
                       + " exchanges FLOAT32; leave it out, or use ASYNC_PS, SSP, SYNC_PS or RING");
  }
  check_placement(job, found != nullptr && !found->uses_shards(), problems);
}

std::string custom_parameter(const proto::Job& job, const std::string& name) {
  const auto& all = job.custom_protocol().parameter();
  const auto i = std::ranges::find(all, name, &proto::CustomParameter::name);
  return i == all.end() ? std::string{} : i->value();
}

} // namespace troupe
