#include "actors/cluster/address.hpp"
#include "actors/cluster/cluster_node.hpp"
#include "actors/cluster/prober.hpp"
#include "actors/cluster/redials.hpp"
#include "actors/link/port.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// This file: how a cluster_node reaches actors of other nodes. It connects to nodes, accepts
// connections, and keeps a link to each node.

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_interval{500};

/// Largest number of nodes that have sent Hello and are not peers yet. Any further node receives no
/// answer.
constexpr std::size_t max_newcomers = 256;

/// Time limit for a probe. It is longer than it takes to resolve and try all addresses.
constexpr std::chrono::minutes probe_limit{2};

} // namespace

// Returns the task by which other nodes know the node that runs `task`. If the node has several
// tasks, it is the coordinator, to which every node has a link. Otherwise, it is `task`.
task_name cluster_node::front_of(const task_name& task) const {
  const auto member = std::ranges::find(view_.members, task, &member::task);
  const auto coordinator = links_.find(coordinator_task);
  return member != view_.members.end() && coordinator != links_.end()
      && coordinator->second.incarnation == member->incarnation
    ? coordinator_task
    : task;
}

void cluster_node::host(const endpoint& name, caf::strong_actor_ptr actor,
                        const std::optional<link_peer>& only) {
  local_->add(name, std::move(actor), only);
  flush_waiting();
}

caf::strong_actor_ptr cluster_node::lookup(const endpoint& name) {
  if (hosts(name.task))
    return local_->find(name);
  auto i = links_.find(front_of(name.task));
  if (i == links_.end())
    return nullptr;
  auto& port = i->second.ports[name];
  if (!port)
    port = make_port(system(), i->second.session, name);
  return port;
}

void cluster_node::reach(const endpoint& name, on_reached then) {
  if (auto actor = lookup(name)) {
    then(std::move(actor));
    return;
  }
  waiting_.emplace_back(name, std::move(then));
  if (!hosts(name.task))
    dial_if_ours(front_of(name.task));
}

void cluster_node::flush_waiting() {
  // Empty `waiting_` before the loop, because `then` may add entries to it.
  for (auto& [name, then] : std::exchange(waiting_, {}))
    if (auto actor = lookup(name))
      then(std::move(actor));
    else
      waiting_.emplace_back(name, std::move(then));
}

// Connects to a task's node, if this node is the one that must connect. Of two nodes, the node with
// the lower task connects, and the other node waits. Tasks are compared by job (evaluator, worker,
// ps, coordinator), then by index.
void cluster_node::dial_if_ours(const task_name& task) {
  if (ended_ || !options_.net || !(options_.tasks.front() < task) || dialling_.contains(task))
    return;
  auto address = addresses_.find(task);
  if (address == addresses_.end())
    return;
  dialling attempt;
  attempt.address = address->second;
  attempt.since = clock().now();
  dialling_.emplace(task, std::move(attempt));
  try_dial(task);
}

void cluster_node::try_dial(const task_name& task) {
  auto i = dialling_.find(task);
  if (ended_ || i == dialling_.end())
    return;
  ++i->second.attempts;
  spdlog::debug("dialling {} at {}, attempt {}", to_string(task), i->second.address,
                i->second.attempts);
  options_.net->dial(task, i->second.address, caf::actor_cast<dial_listener>(this));
}

void cluster_node::on_dialled(const dialled& x) {
  auto i = dialling_.find(x.task);
  if (ended_ || i == dialling_.end())
    return;
  if (i->second.link)
    return; // An attempt from an earlier view has ended late.
  if (x.node) {
    std::string host;
    std::uint16_t port = 0;
    split_address(i->second.address, host, port);
    link::dial_to how{x.node, x.task, options_.tasks.front(), options_.incarnation, host};
    how.hang_up = x.hang_up;
    i->second.link = caf::actor_cast<caf::actor>(system().spawn<link>(
      caf::actor_cast<caf::actor>(this), local_, std::move(how), options_.links));
    return;
  }
  i->second.problem = x.problem;
  spdlog::debug("{} at {} cannot be reached: {}", to_string(x.task), i->second.address, x.problem);
  delayed_send(this, pause_before(i->second.attempts, jitter_), redial{x.task});
}

void cluster_node::on_hello(const proto::Hello& x) {
  if ((ended_ && !returning_) || !current_sender())
    return;
  if (begun_ && !ended_) {
    accept(current_sender(), x);
    return;
  }
  early_.emplace_back(current_sender(), x);
  if (early_.size() > max_newcomers)
    early_.pop_front();
}

void cluster_node::accept(const caf::strong_actor_ptr& peer, const proto::Hello& x) {
  if (newcomers_.size() >= max_newcomers
      && clock().now() - newcomers_.front().since >= time_to_become_peer) {
    anon_send(newcomers_.front().link, end_link{"others wait for its place"});
    newcomers_.pop_front();
  }
  // If too many newcomers wait, do not answer: the node then tries again. A peer with a different
  // wire version is accepted here; it sees the difference in the Welcome, and gives up.
  if (newcomers_.size() >= max_newcomers
      || std::ranges::find(newcomers_, peer, &newcomer::peer) != newcomers_.end())
    return;
  task_name task;
  const auto known = from_proto(x.task(), task) ? links_.find(task) : links_.end();
  const bool second = known != links_.end() && known->second.incarnation != x.incarnation();
  link::accept_from how{peer, x, options_.tasks.front(), options_.incarnation, second};
  admit({peer,
         caf::actor_cast<caf::actor>(system().spawn<link>(caf::actor_cast<caf::actor>(this), local_,
                                                          std::move(how), options_.links)),
         clock().now()});
}

void cluster_node::admit(newcomer x) {
  newcomers_.push_back(std::move(x));
}

void cluster_node::forget_newcomer(const caf::actor& link) {
  std::erase_if(newcomers_, [&](auto& x) { return x.link == link; });
}

// Checks the sender of a request that only the coordinator may make. Returns nothing if the request
// comes over a link or from this process, and an error otherwise.
std::optional<caf::error> cluster_node::refuse_stranger(const char* message) {
  const auto& sender = current_sender();
  // With the framework's protocol, a foreign program can send a message in the name of any actor in
  // the registry of this process. The coordinator's actors are not in the registry, so no program
  // can send in their names.
  if (sender && sender->node() == system().node()
      && (is_port(sender) || system().registry().get(sender->id()) != sender))
    return std::nullopt;
  const std::string text = std::string{"another program sent "} + message + " to "
    + to_string(options_.tasks.front()) + "; only the coordinator may";
  if (strangers_refused_++ == 0)
    on_notice({"refused: " + text + "; others like it are counted, not shown"});
  return make_error(errc::malformed, text);
}

void cluster_node::on_notice(const link_notice& x) {
  if (told_.size() < max_newcomers && told_.insert(x.text).second)
    notice(x.text, notice_level::warning);
}

void cluster_node::on_link_up(const link_up& x) {
  if (ended_) {
    anon_send(caf::actor_cast<caf::actor>(current_sender()),
              end_link{"this node has left the view"});
    return;
  }
  dialling_.erase(x.peer);
  // A second start of a task does not replace the first start. It may ask to join, but the
  // coordinator then refuses.
  if (auto i = links_.find(x.peer); i != links_.end() && i->second.incarnation != x.incarnation) {
    x.session->park();
    i->second.second_start = clock().now();
    drop_replaced_processes();
    if (links_.contains(x.peer))
      return;
  }
  x.session->unpark();
  const auto address = addresses_.find(x.peer);
  spdlog::debug("link to {}{} is up", to_string(x.peer),
                address == addresses_.end() ? ", which dialled," : " at " + address->second);
  forget_newcomer(caf::actor_cast<caf::actor>(current_sender()));
  if (const auto i = links_.find(x.peer); i != links_.end())
    anon_send(i->second.handle, end_link{});
  drop_link(x.peer, caf::exit_reason::remote_link_unreachable);
  links_[x.peer] = {caf::actor_cast<caf::actor>(current_sender()), x.incarnation, x.session};
  x.session->limit(options_.links.limits());
  monitor(links_[x.peer].handle);
  flush_waiting();
}

void cluster_node::on_link_down(const link_down& x, const caf::actor& which) {
  spdlog::debug("link to {} is down: {}", to_string(x.peer), x.reason);
  forget_newcomer(which);
  if (auto i = links_.find(x.peer); i != links_.end() && i->second.handle == which) {
    const auto lost = worker_beside(i->second);
    drop_link(x.peer, make_error(errc::link_lost, x.cause));
    if (x.peer == coordinator_task && !ended_) {
      const auto reason = "lost the coordinator: " + x.reason;
      // The coordinator may be between two views, or may start again later.
      if (returns() && !stopping_)
        leave_view(reason);
      else
        end_with(reason, lost);
    }
    return;
  }
  auto i = dialling_.find(x.peer);
  if (!x.dialled || i == dialling_.end() || i->second.link != which)
    return;
  // The link ended before it could be used, so this node tries again.
  i->second.link = nullptr;
  i->second.problem = x.reason;
  delayed_send(this, pause_before(i->second.attempts, jitter_), redial{x.peer});
}

/// Returns the worker of the node at the other end of a link, or the coordinator's task if that
/// node has no worker.
task_name cluster_node::worker_beside(const peer_link& x) const {
  task_name result = coordinator_task;
  for (const auto& m : view_.members)
    if (m.incarnation == x.incarnation && m.task.job == job_kind::worker)
      result = m.task;
  return result;
}

// Removes the link to a peer, and kills its proxies (`port`) for the peer's actors. Local actors
// that monitor these proxies are notified.
void cluster_node::drop_link(const task_name& peer, const caf::error& reason) {
  auto lost = links_.extract(peer);
  if (!lost)
    return;
  for (auto& [name, port] : lost.mapped().ports)
    static_cast<caf::actor_proxy*>(port->get())->kill_proxy(context(), reason);
}

// Ends the links to processes that have ended and were started again. Such a process does not
// restore its connection. If its host has failed, its connection does not break, but nothing is
// received from it any more.
void cluster_node::drop_replaced_processes() {
  const auto silence = link_options::longest_silence(options_.links.suspect_after);
  std::vector<task_name> ended;
  for (auto& [task, x] : links_) {
    if (!x.second_start)
      continue;
    const auto since = clock().now() - *x.second_start;
    if (x.session->broken() || (since >= silence && x.session->silent_for() >= since))
      ended.push_back(task);
    else if (since >= silence)
      x.second_start.reset();
  }
  for (const auto& task : ended) {
    const std::string reason = "its process has ended, and was started again";
    anon_send(links_.at(task).handle, end_link{reason});
    drop_link(task, make_error(errc::link_lost, reason));
  }
}

void cluster_node::on_tick() {
  ticking_ = false;
  if (ended_)
    return;
  drop_replaced_processes();
  for (auto& [task, attempt] : dialling_) {
    const auto waited = clock().now() - attempt.since;
    const auto text = to_string(task) + " at " + attempt.address + " ("
      + std::to_string(std::chrono::floor<std::chrono::seconds>(waited).count())
      + " s: " + attempt.problem + ")";
    if (waited >= options_.join_timeout) {
      const auto reason = "gave up waiting for " + text
        + ": is it running there, and can this host reach that address? `troupe doctor` shows more";
      const auto tasks = options_.tasks;
      for (auto& own : tasks)
        task_ready(own, reason);
      end_with(reason);
      return;
    }
    if (waited >= attempt.next_notice) {
      notice("waiting for " + text);
      attempt.next_notice =
        std::chrono::floor<std::chrono::seconds>(waited) + std::chrono::seconds{5};
    }
  }
  tick_later();
}

void cluster_node::tick_later() {
  if (!std::exchange(ticking_, true))
    delayed_send(this, tick_interval, tick{});
}

// Starts a separate actor that answers the probe. That actor resolves names and connects, which may
// block.
caf::result<proto::Probed> cluster_node::on_probe() {
  if (probes_.size() >= max_newcomers)
    return make_error(errc::failed, "too many probes wait for an answer of this node");
  probes_.push_back(make_response_promise<proto::Probed>());
  auto result = probes_.back();
  if (probes_.size() == 1)
    begin_probing();
  return result;
}

void cluster_node::begin_probing() {
  auto cluster = options_.cluster;
  for (auto& [task, address] : addresses_)
    cluster[task] = address;
  probe_order order;
  for (auto& task : options_.tasks)
    *order.answer.add_hosted() = to_proto(task);
  for (auto& [task, address] : cluster) {
    if (hosts(task))
      continue;
    auto& x = *order.answer.add_reach();
    *x.mutable_task() = to_proto(task);
    x.set_address(address);
    x.set_connected(links_.contains(front_of(task)));
  }
  const auto answer_all = [this](auto x) {
    for (auto& waiting : std::exchange(probes_, {}))
      waiting.deliver(x);
  };
  request(options_.spawner.spawn_heavy<prober>(system()), probe_limit, std::move(order))
    .then([answer_all](const proto::Probed& x) { answer_all(x); },
          [answer_all](const caf::error& error) { answer_all(error); });
}

} // namespace troupe
