#include "actors/cluster/cluster_node.hpp"
#include "actors/cluster/redials.hpp"
#include "kernels/error.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// This file: how a cluster_node leaves a view (a numbered list of members), joins again, stops and
// ends.

namespace troupe {

namespace {

/// How long a node that has left a view waits before it joins again. The other nodes then have time
/// to leave the view, too.
constexpr std::chrono::milliseconds rejoin_pause{200};

/// How long a coordinator waits if it is stopped between two views. The other nodes then have time
/// to join again, so that it can order them to end.
constexpr std::chrono::milliseconds stop_pause{1'000};

/// How long a node that was told to stop waits for the coordinator's answer.
constexpr std::chrono::milliseconds stop_patience{5'000};

/// How often the operator is told that a node still waits to join again.
constexpr std::chrono::seconds waiting_notice_interval{10};

std::string whole_seconds(std::chrono::nanoseconds x) {
  return std::to_string(std::chrono::floor<std::chrono::seconds>(x).count());
}

} // namespace

// -- between two views --------------------------------------------------------------------------

// Ends all actors and links of this node. The node joins again only when the actors have ended.
// Otherwise, the old and new actors of a task would need memory at the same time.
void cluster_node::leave_view(const std::string& reason) {
  spdlog::debug("{} leaves view {}: {}", to_string(options_.tasks.front()), view_.number, reason);
  for (auto& x : started_) {
    awaited_.insert(caf::actor_cast<caf::actor_addr>(x));
    monitor(x); // The actor may have ended already.
  }
  end_links();
  end_actors(reason);
  returning_ = true;
  leaving_since_ = clock().now();
  // The pause before the first attempt to join again is short. Before further attempts it is
  // longer, because the coordinator may not be ready yet.
  delayed_send(this, left_at_ ? longest_pause : rejoin_pause, begin_again{});
  if (!left_at_) {
    left_at_ = leaving_since_;
    next_waiting_notice_ = leaving_since_ + waiting_notice_interval;
  } else if (leaving_since_ >= next_waiting_notice_) {
    next_waiting_notice_ += waiting_notice_interval;
    notice("waiting to join the run (" + whole_seconds(leaving_since_ - *left_at_)
           + " s): " + reason + "; gives up after " + whole_seconds(options_.join_timeout) + " s");
  }
}

void cluster_node::end_links() {
  while (!links_.empty()) {
    const auto peer = links_.begin()->first;
    anon_send(links_.begin()->second.handle, end_link{"this node has left the view"});
    drop_link(peer, make_error(errc::link_lost, "this node has left the view"));
  }
  for (auto& x : newcomers_)
    anon_send(x.link, end_link{"this node has left the view"});
  for (auto& [task, x] : dialling_)
    if (x.link)
      anon_send(x.link, end_link{"this node has left the view"});
}

/// True if this node tries to join when it loses the coordinator, instead of ending. A node that
/// has left a view tries until `join_timeout` has passed. All other nodes try if the run is
/// elastic, or if they do not have the job yet.
bool cluster_node::returns() const {
  return left_at_ ? clock().now() - *left_at_ < options_.join_timeout
                  : !context_ || context_->job.has_elastic();
}

void cluster_node::on_begin_again() {
  if (!returning_)
    return;
  if (!awaited_.empty() && clock().now() - leaving_since_ < options_.join_timeout) {
    delayed_send(this, rejoin_pause, begin_again{});
    return;
  }
  returning_ = false;
  ended_ = false;
  if (!awaited_.empty()) {
    end_between_views(to_string(options_.tasks.front())
                      + " cannot join again: its computation or its reading of data hangs");
    return;
  }
  options_.incarnation += std::uint64_t{1} << 32;
  local_ = std::make_shared<directory>();
  addresses_.clear();
  devices_.clear();
  context_ = nullptr;
  view_ = {};
  workers_left_ = 0;
  try {
    if (options_.coordinator) {
      open_output_again(*options_.coordinator);
      // Each view writes its own file for TensorBoard. The file's name contains `started` in
      // seconds. So add at least one second, to get another name.
      options_.coordinator->origin.started += std::max<std::chrono::steady_clock::duration>(
        clock().now() - begun_at_, std::chrono::seconds{1});
    }
  } catch (const std::exception& error) { // input_error, std::system_error
    end_between_views(after_.reason + "; the run cannot go on: " + error.what());
    return;
  }
  on_begin({address_});
  if (auto order = std::exchange(stop_later_, std::nullopt))
    delayed_send(this, stop_pause, std::move(*order));
}

void cluster_node::end_between_views(const std::string& failure) {
  run_summary summary;
  summary.failure = failure;
  if (options_.coordinator && options_.observer)
    send(options_.observer, summary);
  end(summary);
}

// -- end ----------------------------------------------------------------------------------------

void cluster_node::on_stop(const stop_run& x) {
  if (returning_ && options_.coordinator) {
    stop_later_ = x;
    return;
  }
  if (returning_) {
    returning_ = ended_ = false;
    end_with("stopped (" + x.reason + ')');
    return;
  }
  if (ended_)
    return;
  stopping_ = x;
  if (coordinator_) {
    send(caf::actor_cast<caf::typed_actor<rpc<void, stop_run>>>(coordinator_), x);
    return;
  }
  if (only(job_kind::evaluator)) {
    end_with(""); // The coordinator continues without this node.
    return;
  }
  // True if the coordinator may need this node for a checkpoint at the end.
  const bool serves = context_ && context_->job.has_checkpoint()
    && (!only(job_kind::worker) || context_->protocol.in_step || !context_->protocol.uses_shards());
  std::chrono::milliseconds limit = stop_patience;
  std::string missing = "the coordinator did not answer";
  if (only(job_kind::worker) && !workers_.empty() && !serves) {
    limit = stopping_limit;
    missing = "a worker did not finish its gradient in time";
    for (auto& worker : workers_)
      send(worker, leave_run{x.reason});
  } else if (auto coordinator = lookup({coordinator_task, proto::COORDINATOR})) {
    auto failure = stopped_task(options_.tasks.front(), x.reason);
    failure.set_goes_on(serves);
    if (serves)
      limit += stopping_limit;
    send(caf::actor_cast<coordinator_actor>(coordinator), std::move(failure));
  } else {
    end_with("stopped (" + x.reason + ')');
    return;
  }
  // If nothing else ends the node within this limit, it ends by itself.
  run_summary given_up;
  given_up.failure = "stopped (" + x.reason + "); " + missing;
  given_up.interrupted = true;
  delayed_send(this, limit, std::move(given_up));
}

void cluster_node::on_worker_left() {
  if (++workers_left_ == workers_.size())
    end_with("");
}

void cluster_node::end_with(const std::string& failure, const std::optional<task_name>& lost) {
  run_summary summary;
  summary.failure = failure;
  summary.missing = lost;
  end(summary);
}

void cluster_node::end(const run_summary& summary) {
  if (ended_)
    return;
  auto last = summary;
  if (last.missing)
    last.ring = ring_without(*last.missing);
  if (last.ring)
    last.failure += "; " + to_string(*last.ring);
  end_actors(last.failure.empty() ? "the run is over" : last.failure);
  if (options_.on_end)
    options_.on_end(last);
  quit();
}

// Describes the loss of a worker of the ring: which worker, and which step this node's own rank was
// in. The result is the same whether this node, a neighbour, or the coordinator noticed the loss
// first. Nothing if this node has no rank in the ring, or runs `lost` itself.
std::optional<ring_failure> cluster_node::ring_without(const task_name& lost) {
  const auto workers = view_.of(job_kind::worker);
  const auto at = std::ranges::find(workers, lost, &member::task);
  if (at == workers.end() || hosts(lost))
    return std::nullopt;
  for (const auto& [task, board] : boards_)
    if (const auto x = board->ring()) {
      ring_failure result{lost, static_cast<std::size_t>(at - workers.begin())};
      result.rank = x->rank;
      result.ranks = x->ranks;
      result.step = x->step;
      result.bucket = x->bucket;
      result.waited = std::chrono::floor<std::chrono::milliseconds>(clock().now() - x->since);
      return result;
    }
  return std::nullopt;
}

void cluster_node::on_exit() {
  if (ended_ && !returning_)
    return;
  const std::string reason = "this node has ended";
  end_actors(reason);
  run_summary summary;
  summary.failure = reason;
  if (options_.on_end)
    options_.on_end(summary);
}

// Ends all actors that this node started, answers waiting requests, and drops all handles, because
// CAF frees an actor with its last reference.
void cluster_node::end_actors(const std::string& reason) {
  ended_ = true;
  for (auto& [task, state] : opening_)
    for (auto& answer : state.answers)
      answer.deliver(make_error(errc::failed, reason));
  for (auto i = started_.rbegin(); i != started_.rend(); ++i)
    anon_send_exit(*i, caf::exit_reason::user_shutdown);
  started_.clear();
  boards_.clear();
  workers_.clear();
  waiting_.clear();
  early_.clear();
  newcomers_.clear();
  for (auto& x : std::exchange(probes_, {}))
    x.deliver(make_error(errc::failed, reason));
  coordinator_ = nullptr;
  opening_.clear();
  dialling_.clear();
  links_.clear();
  local_->clear();
}

} // namespace troupe
