#pragma once

#include "actors/cluster/transport.hpp"
#include "actors/collective/collective_member.hpp"
#include "actors/link/link.hpp"
#include "actors/tick.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct collective_node_options {
  std::size_t rank = 0;
  /// "host:port" of each rank.
  std::vector<std::string> addresses;
  collective_member_actor member;
  std::shared_ptr<transport> net;
  link_options links;
  /// How long to wait for the other ranks.
  std::chrono::milliseconds patience{30'000};
  /// Differs for each start of a process.
  std::uint64_t incarnation = 1;
};

/// Connect to all other ranks. Answered when all are there, or with errc::timed_out.
struct connect_ranks {};

struct ranks_connected {};

/// Try again to reach a rank.
struct dial_rank {
  std::size_t rank = 0;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::connect_ranks)
TROUPE_LOCAL_MESSAGE(troupe::ranks_connected)
TROUPE_LOCAL_MESSAGE(troupe::dial_rank)

namespace troupe {

using collective_node_actor =
  caf::typed_actor<rpc<ranks_connected, connect_ranks>, rpc<void, proto::Hello>, rpc<void, dialled>,
                   rpc<void, link_up>, rpc<void, link_down>, rpc<void, link_notice>,
                   rpc<void, dial_rank>, rpc<void, tick>>;

/// Connects a member of a collective to those of other processes, with a link to each; of two
/// ranks, the lower one dials. The member meets the others when all are there. It hears of a rank
/// whose link is lost later on as of any actor that ends. Ends with its member.
class collective_node : public guarded<collective_node_actor::base> {
public:
  using super = guarded<collective_node_actor::base>;

  collective_node(caf::actor_config& cfg, collective_node_options options);

  const char* name() const override { return "troupe.collective_node"; }

protected:
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  struct connection {
    caf::actor link;
    caf::strong_actor_ptr port;
  };

  caf::result<ranks_connected> on_connect();
  void on_hello(const proto::Hello& x);
  void dial(std::size_t rank);
  void on_dialled(const dialled& x);
  void on_link_up(const link_up& x);
  void on_link_down(const link_down& x);
  void lose(std::size_t rank, const std::string& reason);
  void on_tick();
  task_name task_of(std::size_t rank) const;
  bool complete() const { return links_.size() + 1 == options_.addresses.size(); }

  collective_node_options options_;
  std::shared_ptr<directory> local_ = std::make_shared<directory>();
  std::map<std::size_t, connection> links_;
  /// By rank: why it could not be reached yet.
  std::map<std::size_t, std::string> problems_;
  std::optional<caf::typed_response_promise<ranks_connected>> answer_;
  bool met_ = false;
};

} // namespace troupe
