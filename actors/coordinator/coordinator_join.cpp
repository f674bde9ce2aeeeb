#include "actors/checkpoint/checkpoint_manifest.hpp"
#include "actors/coordinator/coordinator.hpp"
#include "actors/link/link.hpp"
#include "actors/model/problem_list.hpp"
#include "actors/model/replica_state.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// This file: the beginning of a run. Tasks join, the view opens, and the training tasks are
// connected.

namespace troupe {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds join_tick_interval{250};

/// If a task that is already a member asks to join again, the answer is delayed by this time and
/// link_options::longest_silence(). Perhaps its earlier process has ended. This node learns about
/// the end of a process on another host after about a second (channel_host_options::refused_for).
/// If that host has failed, too, this node waits until the earlier process has been silent for too
/// long.
constexpr std::chrono::milliseconds second_start_patience{2'000};
/// A node gives up its request to join after a longer time.
constexpr std::chrono::milliseconds longest_second_start_patience{30'000};

/// If a task that was lost in this view asks to join again, the answer is delayed by this time.
/// Normally, the loss ends the view before that. If the view still goes on, the task may join it.
constexpr std::chrono::milliseconds loss_patience{500};

std::string plural(std::size_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

} // namespace

std::chrono::milliseconds coordinator::join_timeout() const {
  return std::chrono::milliseconds{job().runtime().join_timeout_ms()};
}

// -- gathering ----------------------------------------------------------------------------------

caf::result<proto::Joined> coordinator::on_join(const proto::Join& x) {
  task_name task;
  if (!from_proto(x.task(), task))
    return make_error(errc::join_refused, "there is no job '" + x.task().job() + "'");
  if (next_) {
    too_early_.push_back(make_response_promise<proto::Joined>());
    return too_early_.back();
  }
  if (const auto reason = members_.refusal(x, task)) {
    if (!members_.has_other_start(task, x.incarnation()))
      return refuse(task, x.address(), *reason);
    const std::chrono::milliseconds suspect_after{job().runtime().suspect_after_ms()};
    return hold({task, x.address(), *reason},
                std::min(second_start_patience + link_options::longest_silence(suspect_after),
                         longest_second_start_patience));
  }
  if (phase_ == phase::running && lost_.contains(task))
    return hold({task, x.address()}, loss_patience);
  proto::Joined answer;
  answer.set_job(job().SerializeAsString());
  answer.set_job_hash(options_.context->hash);
  *answer.mutable_data() = to_proto(options_.context->data);
  if (options_.context->fingerprint)
    *answer.mutable_fingerprint() = *options_.context->fingerprint;
  if (!members_.join(task, x.incarnation(), x.address()))
    return answer; // The node has sent this Join before.
  spdlog::debug("{} joined{}, {} of {}", to_string(task),
                x.address().empty() ? "" : " from " + x.address(), members_.joined().size(),
                options_.tasks.size());
  watch_node(task);
  if (phase_ == phase::gathering && members_.all_joined(options_.after.last > 0))
    solves() ? solve() : open_view();
  else if (phase_ != phase::gathering && task.job == job_kind::evaluator && !solves())
    open_evaluator(task);
  else if (phase_ == phase::running && elastic() && trains(task))
    end_view(to_string(task) + " joins");
  else if (phase_ == phase::opening && elastic() && trains(task))
    joins_early_ = to_string(task) + " joins";
  return answer;
}

caf::error coordinator::refuse(const task_name& task, const std::string& address,
                               const std::string& reason) {
  // A node that has left a view may ask many times, but the same notice is given only once.
  const auto text = "refused " + to_string(task) + " at " + address + ": " + reason;
  if (refusals_.insert(text).second)
    notice(text, notice_level::warning);
  return make_error(errc::join_refused, reason);
}

caf::result<proto::Joined> coordinator::hold(second_start x, std::chrono::milliseconds patience) {
  const auto number = ++second_starts_held_;
  x.answer = make_response_promise<proto::Joined>();
  delayed_send(this, patience, answer_second_start{number});
  return second_starts_.emplace(number, std::move(x)).first->second.answer;
}

void coordinator::on_answer_second_start(const answer_second_start& x) {
  auto held = second_starts_.extract(x.number);
  if (!held)
    return;
  auto& [task, address, refusal, answer] = held.mapped();
  lost_.erase(task);
  if (refusal.empty())
    answer.deliver(make_error(errc::link_lost, "the run continues, so the task may join it"));
  else
    answer.deliver(refuse(task, address, refusal));
}

/// Removes a lost task from the members. If a new process of this task already waits to join, it is
/// told to ask again.
void coordinator::leave_members(const task_name& task) {
  members_.leave(task);
  const bool needed = task.job == job_kind::ps || options_.context->protocol.needs_all;
  if (phase_ == phase::running && trains(task) && needed)
    lost_.insert(task);
  for (auto i = second_starts_.begin(); i != second_starts_.end();)
    if (i->second.task == task) {
      i->second.answer.deliver(make_error(errc::link_lost, "its earlier process has ended"));
      i = second_starts_.erase(i);
    } else {
      ++i;
    }
}

/// True if this task takes part in training. False for evaluators, and for parameter servers if the
/// protocol needs none.
bool coordinator::trains(const task_name& task) const {
  return task.job == job_kind::worker
    || (task.job == job_kind::ps && options_.context->protocol.uses_shards());
}

// Ends this view of an elastic run. The run writes a checkpoint first, and the next view continues
// from it.
void coordinator::end_view(const std::string& reason) {
  if (!view_ends_.empty())
    return;
  view_ends_ = reason;
  send(run_, end_run{.reason = reason, .interrupted = true, .next_view = true});
}

// Handles a failure that a task reports. If the operator stops a single task, an elastic run
// continues without this task.
void coordinator::on_failure(const proto::Failure& x) {
  if (elastic() && x.stopped() && view_ends_.empty())
    view_ends_ = x.reason();
  send(run_, x);
}

void coordinator::watch_node(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    nodes_[task] = node;
    monitor(node);
    monitored_nodes_[node.address()] = task;
  });
}

// Handles the loss of a node. Before training, this means that the node's task is lost. During
// training, this actor also monitors the actors of workers and shards, and on_down() handles their
// loss.
void coordinator::on_node_down(const task_name& task, const std::string& reason) {
  nodes_.erase(task);
  // An evaluator that leaves may join again. In an elastic run, every task may join again.
  if (task.job == job_kind::evaluator || elastic())
    leave_members(task);
  if (task.job == job_kind::evaluator && (phase_ != phase::gathering || !members_.expects(task)))
    return;
  if (phase_ == phase::gathering) {
    leave_members(task);
    notice(reason + "; waiting for it to join again", notice_level::warning);
  } else if (phase_ == phase::opening) {
    fail_without_task(reason);
  }
}

void coordinator::report_waiting() {
  if (phase_ != phase::gathering)
    return;
  delayed_send(this, join_tick_interval, tick{});
  const auto now = clock().now();
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - began_);
  const auto patience = options_.after.last > 0
    ? std::chrono::milliseconds{job().elastic().rejoin_timeout_ms()}
    : join_timeout();
  if (now - began_ >= patience && enough_joined()) {
    notice("going on without " + members_.missing() + ", which may join later",
           notice_level::warning);
    open_view();
  } else if (now - began_ >= std::max(patience, join_timeout())) {
    fail("not all tasks joined within "
         + plural(static_cast<std::size_t>(join_timeout().count() / 1000), "second") + ": missing "
         + members_.missing() + ". Start them with `troupe node`, with the same cluster file");
  } else if (waited >= next_notice_) {
    notice("waiting for " + members_.missing() + " for "
           + plural(static_cast<std::size_t>(waited.count()), "second"));
    next_notice_ = waited + std::chrono::seconds{5};
  }
}

/// True if an elastic run can continue with the tasks that have joined. No parameter server may be
/// missing, because each one holds the part of the weights that belongs to its index.
bool coordinator::enough_joined() const {
  const auto joined = [this](job_kind job) {
    return static_cast<std::size_t>(
      std::ranges::count_if(members_.joined(), [job](auto& x) { return x.first.job == job; }));
  };
  const auto& protocol = options_.context->protocol;
  const auto workers = joined(job_kind::worker);
  if (!elastic() || workers < job().elastic().min_workers()
      || (protocol.uses_shards() && joined(job_kind::ps) < members_.expected_of(job_kind::ps)))
    return false;
  problem_list problems;
  if (protocol.validate_workers)
    protocol.validate_workers(job(), workers, problems);
  return problems.empty();
}

// -- opening the view ---------------------------------------------------------------------------

template <class Handle>
void coordinator::reach(const endpoint& name, std::function<void(Handle)> then) {
  request(options_.host, join_timeout(), resolve{name})
    .then([then](const resolved& x) { then(caf::actor_cast<Handle>(x.actor)); },
          [this, name](const caf::error& error) {
            // If the evaluator cannot be reached, the run continues without it. If another task
            // cannot be reached, the run fails.
            if (name.task.job != job_kind::evaluator)
              fail_without_task(to_string(name) + " cannot be reached: " + explain(error));
          });
}

void coordinator::open_view() {
  phase_ = phase::opening;
  for (auto& [task, x] : members_.joined())
    if (task.job != job_kind::evaluator)
      view_.members.push_back({task, x.incarnation, x.address});
  spdlog::debug("opening view {} with {} tasks", view_.number, view_.members.size());
  const view_opened news{view_};
  send(run_, news);
  send(captures_, news);
  send(progress_, news);
  for (auto& x : view_.members)
    open_at(x.task);
  for (auto& [task, x] : members_.joined())
    if (task.job == job_kind::evaluator)
      open_evaluator(task);
}

void coordinator::open_at(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    // This limit is longer than the time for which the node waits for its peers. So the node can
    // report which peer is missing, before this request fails.
    const auto limit = join_timeout() + std::min<std::chrono::milliseconds>(join_timeout(), 3s);
    auto order = to_proto(view_, task);
    if (const auto scale = resumed_scale(resumed_marks_, task.index);
        scale && task.job == job_kind::worker)
      *order.mutable_loss_scale() = to_proto(*scale);
    request(node, limit, std::move(order))
      .then(
        [this, task](const proto::ViewReady&) {
          spdlog::trace("{} is ready for view {}", to_string(task), view_.number);
          if (phase_ == phase::opening && ++views_opened_ == view_.members.size())
            reach_tasks();
        },
        [this, task](const caf::error& error) {
          const auto text = to_string(task) + " cannot take part: " + explain(error);
          // Bad input ends the run in the first view. In a later view, the run continues with the
          // other tasks.
          if (code_of(error) == errc::bad_input && options_.after.last == 0)
            fail(text);
          else
            fail_without_task(text);
        });
  });
}

// Starts the evaluator task. It is not part of the view, because a run can continue without it.
void coordinator::open_evaluator(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    request(node, join_timeout(), to_proto(view_, task))
      .then(
        [this, task](const proto::ViewReady&) {
          reach<evaluation_actor>({task, proto::EVALUATOR}, [this, task](evaluation_actor x) {
            send(captures_, use_evaluator{task, std::move(x)});
          });
        },
        [this, task](const caf::error& error) {
          notice(to_string(task) + " cannot take part: " + explain(error)
                 + "; the coordinator evaluates instead");
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
    if (--unreached_ == 0)
      begin_training();
  });
}

void coordinator::reach_tasks() {
  const auto workers = view_.of(job_kind::worker);
  const auto shards = view_.of(job_kind::ps);
  const bool by_shards = options_.context->protocol.uses_shards();
  const auto parameters = options_.context->parameters().size();
  handles_ = std::make_shared<cluster_handles>();
  auto& x = *handles_;
  x.workers.resize(workers.size());
  x.shards.resize(by_shards ? shards.size() : 0);
  x.readers.resize(by_shards ? shards.size() : 1);
  x.reporters.resize(by_shards ? shards.size() : workers.size());
  x.parts = by_shards ? options_.context->shards(shards.size())
                      : replica_parts(*options_.context, workers.size());
  for (std::size_t i = 0; i < x.reporters.size(); ++i)
    x.restored.push_back(by_shards ? x.parts[i] : range{0, parameters});
  // Count one task too many until all requests are sent. Otherwise, early answers could start
  // training before the last request is sent.
  ++unreached_;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    reach_for_training({workers[i].task, proto::WORKER}, x.workers[i], true);
    if (!by_shards)
      reach_for_training({workers[i].task, proto::SYNCHRONIZER}, x.reporters[i]);
  }
  for (std::size_t i = 0; i < x.readers.size(); ++i) {
    x.reader_tasks.push_back(by_shards ? shards[i].task : workers[0].task);
    x.reader_parts.push_back(by_shards ? x.parts[i] : range{0, parameters});
    reach_for_training({x.reader_tasks[i], proto::READER}, x.readers[i]);
  }
  for (std::size_t i = 0; i < x.shards.size(); ++i) {
    reach_for_training({shards[i].task, proto::SHARD}, x.shards[i], true);
    reach_for_training({shards[i].task, proto::SHARD}, x.reporters[i]);
  }
  --unreached_;
}

void coordinator::begin_training() {
  if (phase_ != phase::opening)
    return;
  phase_ = phase::running;
  send(captures_, begin_run{handles_});
  send(run_, begin_run{handles_});
  if (!joins_early_.empty())
    end_view(joins_early_);
}

// Connects to all nodes first, so that each node receives the message that the run is over.
void coordinator::solve() {
  phase_ = phase::opening;
  auto missing = std::make_shared<std::size_t>(members_.joined().size() + 1);
  const auto one_less = [this, missing] {
    if (--*missing > 0 || phase_ != phase::opening)
      return;
    phase_ = phase::running;
    send(captures_, begin_run{});
    send(run_, begin_run{});
  };
  for (auto& [task, x] : members_.joined())
    reach<node_actor>({task, proto::NODE}, [this, task = task, one_less](node_actor node) {
      nodes_[task] = std::move(node);
      one_less();
    });
  one_less();
}

} // namespace troupe
