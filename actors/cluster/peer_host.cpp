#include "actors/cluster/peer_host.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/basp_transport.hpp"
#include "kernels/error.hpp"

#include <caf/io/all.hpp>

#include <algorithm>
#include <random>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// How long to poll for the next message. Sleeping instead would cost about the same time, because
/// two threads would have to be woken.
constexpr std::chrono::microseconds wait_for_next{100};

} // namespace

peer_host::peer_host(caf::actor_system& sys, peer_host_options options) : self_(sys) {
  if (!sys.has_middleman())
    throw input_error{"processes need the framework's network module: call "
                      "load<caf::io::middleman>() on the configuration of the actor system"};
  std::string host;
  std::uint16_t port = 0;
  if (!options.address.empty() && !split_address(options.address, host, port))
    throw input_error{"'" + options.address + "' is not host:port"};
  if (options.by != peer_host_options::transport::basp) {
    channel_host_options how;
    how.address = host;
    how.local = options.by == peer_host_options::transport::automatic;
    how.grace = std::min(how.grace, options.deadline);
    how.last_words = options.deadline;
    how.outlived = true;
    try {
      channels_ = std::make_shared<channel_host>(sys, how);
    } catch (const std::system_error& error) {
      throw input_error{"cannot listen on " + host + ": " + error.what()};
    }
  }
  auto how = std::move(options.node);
  how.net = std::make_shared<basp_transport>(sys);
  how.links.channels = channels_;
  how.incarnation = std::random_device{}();
  if (options.spawn_resident)
    how.resident = options.spawn_resident(channels_);
  node_ = sys.spawn<peer_node>(std::move(how));
  try {
    if (!options.address.empty())
      port_ =
        basp_transport::listen(sys, caf::actor_cast<caf::strong_actor_ptr>(node_), host, port);
  } catch (...) {
    self_->send(node_, leave_peers{});
    self_->wait_for(node_);
    throw;
  }
}

peer_host::~peer_host() {
  self_->send(node_, leave_peers{});
  self_->wait_for(node_);
  if (port_ != 0)
    self_->system().middleman().unpublish(caf::actor_cast<caf::actor>(node_), port_);
  if (channels_)
    channels_->stop();
}

caf::expected<peers_connected> peer_host::connect() {
  caf::expected<peers_connected> result{caf::error{}};
  self_->request(node_, caf::infinite, connect_peers{})
    .receive([&](peers_connected& x) { result = std::move(x); },
             [&](caf::error& error) { result = std::move(error); });
  return result;
}

bool peer_host::read_until(function_ref<bool()> done) {
  return channels_ ? channels_->read_until(done, wait_for_next) : done();
}

} // namespace troupe
