#include "actors/coordinator/coordinator.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// How a run begins: tasks join, the view is opened, and whoever trains is reached.

namespace troupe {

using namespace std::chrono_literals;

namespace {

std::string plural(std::size_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

} // namespace

// -- gathering ----------------------------------------------------------------------------------

bool coordinator::expects(const task_name& task) const {
  return std::ranges::find(options_.tasks, task, &expected_task::task) != options_.tasks.end();
}

bool coordinator::all_joined() const {
  return std::ranges::all_of(options_.tasks, [&](auto& x) { return joined_.contains(x.task); });
}

std::optional<std::string> coordinator::refusal(const proto::Join& x, const task_name& task) const {
  const auto name = to_string(task);
  // Launchers do not name the evaluator, which nobody needs to find.
  if (!expects(task) && task != task_name{job_kind::evaluator, 0})
    return name + " is not in the cluster of this coordinator";
  if (x.version() != version())
    return name + " runs troupe " + x.version() + ", the coordinator " + version()
      + ": install the same version on all nodes";
  if (auto i = joined_.find(task); i != joined_.end() && i->second.incarnation != x.incarnation())
    return name + " has joined already, from " + i->second.address
      + ": is it started twice, or does --task say the wrong number?";
  if (x.job_hash().empty() || x.job_hash() == options_.context->hash)
    return std::nullopt;
  std::string difference;
  try {
    difference = first_difference(parse_job(x.job_text(), name), job());
  } catch (const input_error& error) {
    difference = error.what();
  }
  return name + " was given another job (hash " + x.job_hash().substr(0, 12)
    + ", the coordinator's " + options_.context->hash.substr(0, 12) + "): " + difference
    + ". Leave out --job on nodes: the coordinator sends its own";
}

caf::result<proto::Joined> coordinator::on_join(const proto::Join& x) {
  task_name task;
  if (!from_proto(x.task(), task))
    return make_error(errc::join_refused, "there is no job '" + x.task().job() + "'");
  if (auto reason = refusal(x, task)) {
    notice("refused " + to_string(task) + " at " + x.address() + ": " + *reason,
           notice_level::warning);
    return make_error(errc::join_refused, *reason);
  }
  proto::Joined answer;
  answer.set_job(job().SerializeAsString());
  answer.set_job_hash(options_.context->hash);
  *answer.mutable_data() = to_proto(options_.context->data);
  if (!joined_.emplace(task, member{task, x.incarnation(), x.address()}).second)
    return answer; // A repetition.
  spdlog::debug("{} joined{}, {} of {}", to_string(task),
                x.address().empty() ? "" : " from " + x.address(), joined_.size(),
                options_.tasks.size());
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    nodes_[task] = node;
    monitor(node);
    monitored_nodes_[node.address()] = task;
  });
  if (phase_ == phase::gathering && all_joined())
    solves() ? solve() : open_view();
  else if (phase_ != phase::gathering && task.job == job_kind::evaluator && !solves())
    open_evaluator(task);
  return answer;
}

// Tasks that train are watched themselves; before that, their nodes stand for them.
void coordinator::on_node_down(const task_name& task, const std::string& reason) {
  nodes_.erase(task);
  // An evaluator that goes may come again.
  if (task.job == job_kind::evaluator)
    joined_.erase(task);
  if (task.job == job_kind::evaluator && (phase_ != phase::gathering || !expects(task)))
    return;
  if (phase_ == phase::gathering) {
    joined_.erase(task);
    notice(reason + "; waiting for it to join again", notice_level::warning);
  } else if (phase_ == phase::opening) {
    fail(reason);
  }
}

void coordinator::report_waiting() {
  const auto waited = std::chrono::floor<std::chrono::seconds>(clock().now() - began_);
  std::string missing;
  for (auto& x : options_.tasks)
    if (!joined_.contains(x.task))
      missing += (missing.empty() ? "" : ", ") + to_string(x.task)
        + (x.address.empty() ? "" : " (" + x.address + ")");
  const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
  if (clock().now() - began_ >= limit) {
    fail("not all tasks joined within "
         + plural(static_cast<std::size_t>(limit.count() / 1000), "second") + ": missing " + missing
         + ". Start them with `troupe node`, with the same cluster file");
  } else if (waited >= next_notice_) {
    notice("waiting for " + missing + " since "
           + plural(static_cast<std::size_t>(waited.count()), "second"));
    next_notice_ = waited + std::chrono::seconds{5};
  }
}

// -- opening the view ---------------------------------------------------------------------------

template <class Handle>
void coordinator::reach(const endpoint& name, std::function<void(Handle)> then) {
  const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
  request(options_.host, limit, resolve{name})
    .then([then](const resolved& x) { then(caf::actor_cast<Handle>(x.actor)); },
          [this, name](const caf::error& error) {
            // A run needs no evaluator.
            if (name.task.job != job_kind::evaluator)
              fail(to_string(name) + " cannot be reached: " + explain(error));
          });
}

void coordinator::open_view() {
  phase_ = phase::opening;
  view_.number = options_.resume ? options_.resume->manifest.view + 1 : 1;
  for (auto& [task, x] : joined_)
    if (task.job != job_kind::evaluator)
      view_.members.push_back(x);
  spdlog::debug("opening view {} with {} tasks", view_.number, view_.members.size());
  for (auto& x : view_.of(job_kind::worker)) {
    worker_state worker;
    worker.rank = workers_.size();
    worker.account.worker = x.task.index;
    worker.account.incarnation = x.incarnation;
    workers_.push_back(std::move(worker));
  }
  lease_book::options how;
  how.records = options_.context->data.train_records;
  how.batch = static_cast<std::uint32_t>(options_.context->batch());
  how.workers = workers_.size();
  how.in_step = in_step();
  how.remember = job().has_checkpoint();
  leases_.emplace(how);
  for (auto& x : view_.members)
    open_at(x.task);
  for (auto& [task, x] : joined_)
    if (task.job == job_kind::evaluator)
      open_evaluator(task);
}

void coordinator::open_at(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    // Longer than a node waits for its own peers: then it says for whom.
    const std::chrono::milliseconds patience{job().runtime().join_timeout_ms()};
    const auto limit = patience + std::min<std::chrono::milliseconds>(patience, 3s);
    request(node, limit, to_proto(view_, task))
      .then(
        [this, task](const proto::ViewReady&) {
          spdlog::trace("{} is ready for view {}", to_string(task), view_.number);
          if (phase_ == phase::opening && ++views_opened_ == view_.members.size())
            reach_tasks();
        },
        [this, task](const caf::error& error) {
          fail(to_string(task) + " cannot take part: " + explain(error));
        });
  });
}

// Beside the view: a run goes on without it.
void coordinator::open_evaluator(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
    request(node, limit, to_proto(view_, task))
      .then(
        [this, task](const proto::ViewReady&) {
          reach<evaluation_actor>({task, proto::EVALUATOR}, [this, task](evaluation_actor x) {
            send(evaluator_, use_evaluator{task, std::move(x)});
          });
        },
        [this, task](const caf::error& error) {
          notice(to_string(task) + " cannot take part: " + explain(error)
                 + "; the coordinator evaluates itself");
        });
  });
}

template <class Handle>
void coordinator::reach_for_training(const endpoint& name, Handle& where, bool watch) {
  ++unreached_;
  reach<Handle>(name, [this, name, &where, watch](Handle x) {
    where = x;
    if (watch) {
      monitor(x);
      monitored_[x.address()] = name.task;
    }
    if (--unreached_ == 0 && phase_ == phase::opening)
      restore();
  });
}

void coordinator::reach_tasks() {
  const auto workers = view_.of(job_kind::worker);
  const auto shards = view_.of(job_kind::ps);
  shards_.resize(uses_shards() ? shards.size() : 0);
  readers_.resize(uses_shards() ? shards.size() : 1);
  reporters_.resize(uses_shards() ? shards.size() : workers.size());
  lost_samples_.assign(reporters_.size(), 0);
  std::vector<range> parts;
  for (std::size_t i = 0; i < reporters_.size(); ++i)
    parts.push_back(uses_shards()
                      ? options_.context->shard(i, shards_.size())
                      : part_of(options_.context->parameters().size(), reporters_.size(), i));
  step_parts_.emplace(parts, 1, !uses_shards());
  checkpoint_parts_.emplace(std::move(parts), 1 + options_.context->rule.slots(), !uses_shards());
  // Counted once too many until all requests are made, so that training does not start in between.
  ++unreached_;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    reach_for_training({workers[i].task, proto::WORKER}, workers_[i].handle, true);
    if (!uses_shards())
      reach_for_training({workers[i].task, proto::SYNCHRONIZER}, reporters_[i]);
  }
  if (!uses_shards())
    reach_for_training({workers[0].task, proto::READER}, readers_[0]);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    reach_for_training({shards[i].task, proto::SHARD}, shards_[i], true);
    reach_for_training({shards[i].task, proto::SHARD}, reporters_[i]);
    reach_for_training({shards[i].task, proto::READER}, readers_[i]);
  }
  --unreached_;
}

} // namespace troupe
