#include "actors/simulation/simulated_network.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/detail/sync_request_bouncer.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

// This macro compiles the hash function into this file, so that no library must be linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe {

namespace {

/// A message that orders to end a proxy, because its connection broke or its actor ended.
struct kill_order {
  caf::strong_actor_ptr victim;
  caf::error reason;
};

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::kill_order)

namespace troupe {

/// A proxy on node `from` for an actor of node `to`.
class simulated_network::proxy final : public caf::actor_proxy {
public:
  proxy(caf::actor_config& cfg, simulated_network* network, sim_node from, sim_node to,
        caf::strong_actor_ptr target)
    : caf::actor_proxy(cfg), network_(network), from_(from), to_(to), target_(std::move(target)) {}

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) override {
    if (target_)
      network_->transmit(*this, std::move(what));
    else
      caf::detail::sync_request_bouncer{caf::exit_reason::remote_link_unreachable}(*what);
  }

  void kill_proxy(caf::execution_unit* context, caf::error reason) override {
    target_ = nullptr;
    cleanup(std::move(reason), context);
  }

  sim_node from() const noexcept { return from_; }
  sim_node to() const noexcept { return to_; }
  const caf::strong_actor_ptr& target() const noexcept { return target_; }

private:
  simulated_network* network_;
  sim_node from_;
  sim_node to_;
  caf::strong_actor_ptr target_;
};

class simulated_network::node_transport final : public transport {
public:
  node_transport(simulated_network* network, sim_node node) : network_(network), node_(node) {}

  void dial(const task_name& task, const std::string& address, dial_listener listener) override {
    network_->dial(node_, task, address, std::move(listener));
  }

private:
  simulated_network* network_;
  sim_node node_;
};

/// Ends each proxy when a kill_order arrives. The kill_order takes as long as any other message, so
/// a proxy ends only after all earlier messages between the same nodes have arrived.
class simulated_network::reaper final : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

protected:
  caf::behavior make_behavior() override {
    return {[this](kill_order& x) {
      static_cast<caf::actor_proxy*>(x.victim->get())->kill_proxy(context(), std::move(x.reason));
    }};
  }
};

simulated_network::simulated_network(caf::actor_system& sys, std::uint64_t seed, link_model model)
  : sys_(sys), model_(model), random_(seed, "network"), reaper_(sys.spawn<reaper>()) {}

simulated_network::~simulated_network() = default;

void simulated_network::clear() {
  listening_.clear();
  for (auto& [key, x] : std::exchange(proxies_, {}))
    static_cast<caf::actor_proxy*>(x->get())->kill_proxy(nullptr, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(reaper_, caf::exit_reason::user_shutdown);
  reaper_ = nullptr;
}

// -- connecting ---------------------------------------------------------------------------------

void simulated_network::listen(sim_node node, const std::string& address,
                               caf::strong_actor_ptr handle) {
  listening_[address] = {node, std::move(handle)};
}

std::shared_ptr<transport> simulated_network::transport_of(sim_node node) {
  return std::make_shared<node_transport>(this, node);
}

void simulated_network::dial(sim_node from, const task_name& task, const std::string& address,
                             dial_listener listener) {
  dialled answer;
  answer.task = task;
  auto i = listening_.find(address);
  if (i == listening_.end())
    answer.problem = "connection refused";
  else if (!connected(from, i->second.first))
    answer.problem = "no route";
  else
    answer.node = proxy_for(from, i->second.first, i->second.second);
  auto receiver = caf::actor_cast<caf::strong_actor_ptr>(listener);
  sys_.scheduler().clock().schedule_message(
    sys_.scheduler().clock().now() + 2 * model_.latency, std::move(receiver),
    caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(answer)));
}

caf::strong_actor_ptr simulated_network::proxy_for(sim_node viewer, sim_node home,
                                                   const caf::strong_actor_ptr& target) {
  auto& result = proxies_[{viewer, target->id()}];
  if (result && static_cast<proxy*>(result->get())->target())
    return result;
  caf::actor_config cfg;
  result = caf::make_actor<proxy, caf::strong_actor_ptr>(sys_.next_actor_id(), sys_.node(), &sys_,
                                                         cfg, this, viewer, home, target);
  // When the actor ends, end the proxy, too, so that actors that monitor the proxy are notified.
  auto weak = caf::actor_cast<caf::weak_actor_ptr>(result);
  target->get()->attach_functor([this, weak, home, viewer](const caf::error& reason) {
    if (auto victim = weak.lock())
      kill_later(victim, home, viewer, reason);
  });
  return result;
}

// -- messages -----------------------------------------------------------------------------------

void simulated_network::mix(sim_node from, sim_node to, std::span<const char> bytes) {
  bytes_ += bytes.size();
  const std::array<std::uint64_t, 3> event{
    static_cast<std::uint64_t>(sys_.scheduler().clock().now().time_since_epoch().count()),
    from << 32 | to, XXH3_64bits(bytes.data(), bytes.size())};
  trace_ = XXH3_64bits_withSeed(event.data(), sizeof event, trace_);
}

std::optional<std::chrono::steady_clock::time_point>
simulated_network::carry(sim_node from, sim_node to, std::span<const char> bytes) {
  mix(from, to, bytes);
  if (!connected(from, to))
    return std::nullopt;
  return arrival(from, to, bytes.size());
}

std::chrono::steady_clock::time_point simulated_network::arrival(sim_node from, sim_node to,
                                                                 std::size_t bytes) {
  auto& busy = busy_until_[{from, to}];
  const auto wire = std::chrono::nanoseconds{
    static_cast<std::int64_t>(static_cast<double>(bytes) / model_.bytes_per_second * 1e9)};
  const auto jitter = model_.jitter.count() > 0
    ? static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(model_.jitter.count())))
    : 0;
  const auto earliest =
    sys_.scheduler().clock().now() + model_.latency + std::chrono::nanoseconds{jitter};
  busy = std::max(busy + std::chrono::nanoseconds{1}, earliest) + wire;
  return busy;
}

void simulated_network::transmit(const proxy& via, caf::mailbox_element_ptr what) {
  std::vector<char> bytes;
  caf::binary_serializer sink{sys_, bytes};
  auto content = what->move_content_to_message();
  if (auto error = sink(content))
    throw std::logic_error{"a message cannot be encoded: " + caf::to_string(error)};
  ++messages_;
  mix(via.from(), via.to(), bytes);
  if (!connected(via.from(), via.to()))
    return;
  const auto decision = judge_ ? judge_(via.from(), via.to(), content) : verdict::deliver;
  if (decision != verdict::drop)
    deliver(via, *what, bytes);
  if (decision == verdict::duplicate)
    deliver(via, *what, bytes);
}

void simulated_network::deliver(const proxy& via, const caf::mailbox_element& what,
                                const std::vector<char>& bytes) {
  caf::message content;
  caf::binary_deserializer source{sys_, bytes};
  if (auto error = source(content))
    throw std::logic_error{"a message cannot be decoded: " + caf::to_string(error)};
  // The receiver sees a proxy as the sender. Otherwise, its answers would bypass the network.
  caf::strong_actor_ptr sender;
  if (what.sender)
    sender = proxy_for(via.to(), via.from(), what.sender);
  sys_.scheduler().clock().schedule_message(
    arrival(via.from(), via.to(), bytes.size()), via.target(),
    caf::make_mailbox_element(std::move(sender), what.mid, {}, std::move(content)));
}

// -- faults -------------------------------------------------------------------------------------

void simulated_network::kill_later(const caf::strong_actor_ptr& victim, sim_node from, sim_node to,
                                   caf::error reason) {
  if (!reaper_ || !connected(from, to))
    return;
  sys_.scheduler().clock().schedule_message(
    arrival(from, to, 0), caf::actor_cast<caf::strong_actor_ptr>(reaper_),
    caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                              kill_order{victim, std::move(reason)}));
}

void simulated_network::cut(sim_node a, sim_node b) {
  for (auto& [key, x] : proxies_) {
    const auto& p = *static_cast<proxy*>(x->get());
    if (std::minmax(p.from(), p.to()) == std::minmax(a, b))
      kill_later(x, p.to(), p.from(), caf::exit_reason::remote_link_unreachable);
  }
}

void simulated_network::mislead(sim_node viewer, sim_node other) {
  for (auto& [key, x] : proxies_) {
    const auto& p = *static_cast<proxy*>(x->get());
    if (p.from() == viewer && p.to() == other)
      kill_later(x, other, viewer, caf::exit_reason::remote_link_unreachable);
  }
}

void simulated_network::isolate(sim_node node) {
  std::set<sim_node> others;
  for (auto& [key, x] : proxies_) {
    const auto& p = *static_cast<proxy*>(x->get());
    if (p.from() == node)
      others.insert(p.to());
    if (p.to() == node)
      others.insert(p.from());
  }
  for (auto other : others)
    cut(node, other);
}

} // namespace troupe
