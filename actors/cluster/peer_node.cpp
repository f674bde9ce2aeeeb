#include "actors/cluster/peer_node.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/redials.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace troupe {

peer_node::peer_node(caf::actor_config& cfg, peer_node_options options)
  : super(cfg), options_(std::move(options)), jitter_(options_.incarnation | 1) {
  if (options_.resident)
    local_->add({options_.self, options_.service}, options_.resident);
}

peer_node::behavior_type peer_node::make_behavior() {
  if (options_.resident) {
    monitor(options_.resident);
    set_down_handler([this](caf::down_msg& x) {
      if (options_.resident && x.source == options_.resident->address())
        quit();
    });
  }
  set_default_handler(caf::drop);
  return {
    [this](connect_peers) { return on_connect(); },
    [this](const proto::Hello& x) { on_hello(x); },
    [this](const dialled& x) { on_dialled(x); },
    [this](const link_up& x) { on_link_up(x); },
    [this](const link_down& x) { on_link_down(x); },
    [](const link_notice& x) { spdlog::warn(x.text); },
    [this](const dial_peer& x) {
      dialling_.erase(x.peer);
      dial(x.peer);
    },
    [this](leave_peers) { quit(); },
    [this](tick) { on_tick(); },
  };
}

void peer_node::on_exit() {
  for (const auto& [peer, link] : std::exchange(links_, {}))
    static_cast<caf::actor_proxy*>(link.port->get())
      ->kill_proxy(context(), make_error(errc::link_lost, "this node has ended"));
  dialling_.clear();
  local_->clear();
  options_.resident = nullptr;
  if (answer_)
    answer_->deliver(make_error(errc::interrupted, "this node has ended"));
  answer_.reset();
}

std::optional<std::size_t> peer_node::find(const task_name& task) const {
  const auto i = std::ranges::find(options_.peers, task, &peer_node_options::peer::task);
  if (i == options_.peers.end())
    return std::nullopt;
  return static_cast<std::size_t>(i - options_.peers.begin());
}

peers_connected peer_node::all() const {
  peers_connected result;
  for (const auto& [peer, link] : links_)
    result.residents.push_back(link.port);
  return result;
}

caf::result<peers_connected> peer_node::on_connect() {
  // A link may have ended, although its link_down has not arrived yet.
  for (std::size_t i = 0; i < options_.peers.size(); ++i)
    if (const auto x = links_.find(i); x != links_.end() && x->second.session->closed())
      lose(i, "its link has ended");
  if (complete()) // Peers can also connect by themselves, so all may be connected already.
    return all();
  answer_ = make_response_promise<peers_connected>();
  until_ = clock().now() + options_.patience;
  for (std::size_t i = 0; i < options_.peers.size(); ++i)
    dial(i);
  delayed_send(this, options_.patience, tick{});
  return *answer_;
}

void peer_node::dial(std::size_t peer) {
  const auto& to = options_.peers[peer];
  if (!answer_ || !to.dial || links_.contains(peer) || !dialling_.try_emplace(peer).second)
    return;
  options_.net->dial(to.task, to.address, caf::actor_cast<dial_listener>(this));
}

void peer_node::dial_later(std::size_t peer) {
  dialling_[peer] = nullptr;
  delayed_send(this, pause_before(attempts_[peer]++, jitter_), dial_peer{peer});
}

void peer_node::on_dialled(const dialled& x) {
  const auto peer = find(x.task);
  if (!peer)
    return;
  if (!x.node) {
    problems_[*peer] = x.problem;
    dial_later(*peer);
    return;
  }
  if (!answer_) { // Nobody waits for this peer any more.
    dialling_.erase(*peer);
    return;
  }
  std::string host;
  std::uint16_t port = 0;
  split_address(options_.peers[*peer].address, host, port);
  link::dial_to how{x.node, x.task, options_.self, options_.incarnation, host, x.hang_up};
  dialling_[*peer] = caf::actor_cast<caf::actor>(system().spawn<link>(
    caf::actor_cast<caf::actor>(this), local_, std::move(how), options_.links));
}

/// The reason why a process may not connect; empty if it may connect.
std::string peer_node::refusal(const proto::Hello& x) const {
  task_name task;
  const auto peer = from_proto(x.task(), task) ? find(task) : std::nullopt;
  if (!peer && options_.strangers == 0)
    return "no process with this name is expected here; start all processes with the same list of "
           "addresses";
  if (!peer)
    return strangers_.size() < options_.strangers
      ? ""
      : "all " + std::to_string(options_.strangers) + " places are taken";
  const auto& name = options_.peers[*peer].name;
  if (options_.peers[*peer].dial)
    return name + " must not connect: it waits for the connection from this process";
  if (links_.contains(*peer))
    return name + " has connected already; start only one process for it";
  if (met_ && !options_.reconnect)
    return name + " has left and cannot connect again; restart all processes";
  return {};
}

// Makes room for a new process if `options_.strangers` processes that are not peers are connected.
// It ends the link of such a process if the process has sent Hello but its link has not come up in
// time.
void peer_node::free_place() {
  const auto limit = clock().now() - time_to_become_peer;
  const auto idle =
    std::ranges::find_if(strangers_, [&](auto& x) { return x.second && *x.second <= limit; });
  if (strangers_.size() < options_.strangers || idle == strangers_.end())
    return;
  anon_send(caf::actor_cast<caf::actor>(idle->first), end_link{"others wait for its place"});
  strangers_.erase(idle);
}

void peer_node::on_hello(const proto::Hello& x) {
  if (!current_sender())
    return;
  free_place();
  if (const auto reason = refusal(x); !reason.empty()) {
    spdlog::warn("{}/{} may not connect: {}", x.task().job(), x.task().index(), reason);
    proto::Failure answer;
    *answer.mutable_task() = to_proto(options_.self);
    answer.set_reason(reason);
    current_sender()->enqueue(caf::make_mailbox_element(caf::strong_actor_ptr{ctrl()},
                                                        caf::make_message_id(), {},
                                                        std::move(answer)),
                              context());
    return;
  }
  link::accept_from how{current_sender(), x, options_.self, options_.incarnation};
  const auto link = system().spawn<troupe::link>(caf::actor_cast<caf::actor>(this), local_,
                                                 std::move(how), options_.links);
  if (task_name task; !from_proto(x.task(), task) || !find(task))
    strangers_[link.address()] = clock().now();
}

void peer_node::on_link_up(const link_up& x) {
  if (const auto i = strangers_.find(current_sender()->address()); i != strangers_.end())
    i->second.reset();
  const auto peer = find(x.peer);
  if (!peer)
    return;
  lose(*peer, "it has connected again");
  dialling_.erase(*peer);
  problems_.erase(*peer);
  attempts_.erase(*peer);
  links_[*peer] = {caf::actor_cast<caf::actor>(current_sender()),
                   make_port(system(), x.session, endpoint{x.peer, options_.service}), x.session};
  if (!complete())
    return;
  met_ = true;
  if (answer_)
    answer_->deliver(all());
  answer_.reset();
}

void peer_node::on_link_down(const link_down& x) {
  if (current_sender())
    strangers_.erase(current_sender()->address());
  const auto peer = find(x.peer);
  if (!peer)
    return;
  const auto link = caf::actor_cast<caf::actor>(current_sender());
  if (const auto i = links_.find(*peer); i != links_.end() && i->second.link == link)
    lose(*peer, x.cause);
  const auto attempt = dialling_.find(*peer);
  if (attempt != dialling_.end() && attempt->second != link)
    return; // The next attempt has begun already.
  dialling_.erase(*peer);
  problems_[*peer] = x.reason;
  if (x.refused)
    give_up(options_.peers[*peer].name + " at " + options_.peers[*peer].address + ": " + x.reason,
            errc::join_refused);
  else if (x.dialled)
    dial_later(*peer);
}

void peer_node::lose(std::size_t peer, const std::string& reason) {
  if (auto lost = links_.extract(peer))
    static_cast<caf::actor_proxy*>(lost.mapped().port->get())
      ->kill_proxy(context(), make_error(errc::link_lost, reason));
}

void peer_node::on_tick() {
  if (!answer_ || clock().now() < until_)
    return;
  std::string missing;
  for (std::size_t i = 0; i < options_.peers.size(); ++i)
    if (!links_.contains(i))
      missing += (missing.empty() ? "" : ", ") + options_.peers[i].name + " at "
        + options_.peers[i].address + " ("
        + (problems_.contains(i) ? problems_[i] : "nothing heard") + ')';
  give_up("after " + std::to_string(options_.patience.count()) + " ms these were not connected: "
            + missing + "; start all processes, with the same list of addresses",
          errc::timed_out);
}

void peer_node::give_up(const std::string& reason, errc code) {
  if (answer_)
    answer_->deliver(make_error(code, reason));
  answer_.reset();
}

} // namespace troupe
