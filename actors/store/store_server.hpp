#pragma once

#include "actors/store/store_order.hpp"
#include "actors/store/store_request.hpp"
#include "actors/store/store_values.hpp"
#include "messages/store.hpp"

#include <map>
#include <string>
#include <vector>

namespace troupe {

/// A server of a parameter store. It holds a part of the values, and no other actor writes them. It
/// executes each operation as a whole, and the operations of one client in the order of the
/// client's calls (store_order). store_values holds and changes the values.
class store_server : public store_actor::base {
public:
  using super = store_actor::base;

  /// @param servers the parts of all servers, in order
  /// @param index number of this server
  store_server(caf::actor_config& cfg, const std::vector<range>& servers, std::size_t index,
               const store_rule& rule);

  const char* name() const override { return "troupe.store_server"; }

protected:
  behavior_type make_behavior() override;
  /// Answers all waiting operations with an error.
  void on_exit() override;

private:
  using answer = caf::typed_response_promise<proto::StoreAnswer, payload>;

  /// An operation that arrived before earlier operations of its client.
  struct early {
    proto::StoreRequest header;
    std::vector<range> ranges;
    payload values;
    answer promise;
  };

  caf::result<proto::StoreOpened> on_open(const proto::StoreOpen& x);
  caf::result<proto::StoreAnswer, payload> on_request(const proto::StoreRequest& x,
                                                      const payload& values);
  void on_close(const proto::StoreClose& x);

  payload carry_out(const proto::StoreRequest& x, std::span<const range> ranges,
                    const payload& values, bool again);
  void go_on(std::uint64_t client);
  void drop(std::uint64_t client, const std::string& reason);
  proto::StoreAnswer header() const;
  std::string name_of_this() const { return "server " + std::to_string(index_); }

  std::size_t index_;
  std::size_t servers_;
  std::size_t elements_;
  store_values values_;
  store_order order_;
  /// The operations that arrived too early, by client and number.
  std::map<std::uint64_t, std::map<std::uint64_t, early>> early_;
};

} // namespace troupe
