#include "actors/collective/collective_node.hpp"

#include "actors/cluster/address.hpp"

#include <spdlog/spdlog.h>

#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds redial_pause{50};

} // namespace

collective_node::collective_node(caf::actor_config& cfg, collective_node_options options)
  : super(cfg), options_(std::move(options)) {
  local_->add({task_of(options_.rank), proto::RING_NODE},
              caf::actor_cast<caf::strong_actor_ptr>(options_.member));
}

collective_node::behavior_type collective_node::make_behavior() {
  monitor(options_.member);
  set_down_handler([this](caf::down_msg& x) {
    if (x.source == options_.member.address())
      quit();
  });
  return {
    [this](connect_ranks) { return on_connect(); },
    [this](const proto::Hello& x) { on_hello(x); },
    [this](const dialled& x) { on_dialled(x); },
    [this](const link_up& x) { on_link_up(x); },
    [this](const link_down& x) { on_link_down(x); },
    [](const link_notice& x) { spdlog::warn(x.text); },
    [this](const dial_rank& x) { dial(x.rank); },
    [this](tick) { on_tick(); },
  };
}

void collective_node::on_exit() {
  links_.clear();
  local_->clear();
  options_.member = nullptr;
  if (answer_)
    answer_->deliver(make_error(errc::interrupted, "the collective was ended"));
  answer_.reset();
}

task_name collective_node::task_of(std::size_t rank) const {
  return {job_kind::worker, static_cast<std::uint32_t>(rank)};
}

caf::result<ranks_connected> collective_node::on_connect() {
  if (met_) // All others have dialled meanwhile.
    return ranks_connected{};
  answer_ = make_response_promise<ranks_connected>();
  for (auto r = options_.rank + 1; r < options_.addresses.size(); ++r)
    dial(r);
  delayed_send(this, options_.patience, tick{});
  return *answer_;
}

void collective_node::dial(std::size_t rank) {
  if (!met_ && !links_.contains(rank))
    options_.net->dial(task_of(rank), options_.addresses[rank],
                       caf::actor_cast<dial_listener>(this));
}

void collective_node::on_dialled(const dialled& x) {
  const auto rank = std::size_t{x.task.index};
  if (!x.node) {
    problems_[rank] = x.problem;
    delayed_send(this, redial_pause, dial_rank{rank});
    return;
  }
  std::string host;
  std::uint16_t port = 0;
  split_address(options_.addresses[rank], host, port);
  link::dial_to how{x.node, x.task, task_of(options_.rank), options_.incarnation, host};
  system().spawn<link>(caf::actor_cast<caf::actor>(this), local_, std::move(how), options_.links);
}

// A second process of a rank that is there is not answered, and gives up.
void collective_node::on_hello(const proto::Hello& x) {
  task_name peer;
  const bool known = from_proto(x.task(), peer) && peer == task_of(peer.index);
  if (!current_sender())
    return;
  if (!known || peer.index >= options_.rank || links_.contains(peer.index) || met_) {
    spdlog::warn("{}/{} is not to connect to rank {} of a collective now", x.task().job(),
                 x.task().index(), options_.rank);
    return;
  }
  link::accept_from how{current_sender(), x, task_of(options_.rank), options_.incarnation};
  system().spawn<link>(caf::actor_cast<caf::actor>(this), local_, std::move(how), options_.links);
}

void collective_node::on_link_up(const link_up& x) {
  const auto rank = std::size_t{x.peer.index};
  lose(rank, "it has connected again");
  problems_.erase(rank);
  links_[rank] = {caf::actor_cast<caf::actor>(current_sender()),
                  make_port(system(), x.session, endpoint{x.peer, proto::RING_NODE})};
  if (!complete() || std::exchange(met_, true))
    return;
  meet_members all;
  all.peers.resize(options_.addresses.size());
  for (auto& [r, link] : links_)
    all.peers[r] = caf::actor_cast<collective_peer>(link.port);
  send(options_.member, std::move(all));
  if (answer_)
    answer_->deliver(ranks_connected{});
  answer_.reset();
}

void collective_node::on_link_down(const link_down& x) {
  const auto rank = std::size_t{x.peer.index};
  const auto i = links_.find(rank);
  if (i != links_.end() && i->second.link == caf::actor_cast<caf::actor>(current_sender()))
    lose(rank, x.cause);
  problems_[rank] = x.reason;
  if (x.dialled && !met_)
    delayed_send(this, redial_pause, dial_rank{rank});
}

void collective_node::lose(std::size_t rank, const std::string& reason) {
  if (auto lost = links_.extract(rank))
    static_cast<caf::actor_proxy*>(lost.mapped().port->get())
      ->kill_proxy(context(), make_error(errc::link_lost, reason));
}

void collective_node::on_tick() {
  if (!answer_)
    return;
  std::string missing;
  for (std::size_t r = 0; r < options_.addresses.size(); ++r)
    if (r != options_.rank && !links_.contains(r))
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(r) + " at "
        + options_.addresses[r] + " (" + (problems_.contains(r) ? problems_[r] : "nothing heard")
        + ')';
  answer_->deliver(make_error(errc::timed_out,
                              "after " + std::to_string(options_.patience.count())
                                + " ms these ranks were not connected: " + missing
                                + "; start all ranks, with the same list of addresses"));
  answer_.reset();
}

} // namespace troupe
