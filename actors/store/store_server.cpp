#include "actors/store/store_server.hpp"

#include "messages/errors.hpp"
#include "messages/types.hpp"

#include <utility>

namespace troupe {

store_server::store_server(caf::actor_config& cfg, const std::vector<range>& servers,
                           std::size_t index, const store_rule& rule)
  : super(cfg), index_(index), servers_(servers.size()), elements_(servers.back().end),
    values_(servers[index], rule) {}

store_server::behavior_type store_server::make_behavior() {
  return {
    [this](const proto::StoreOpen& x) { return on_open(x); },
    [this](const proto::StoreRequest& x, const payload& values) { return on_request(x, values); },
    [this](const proto::StoreClose& x) { on_close(x); },
  };
}

void store_server::on_exit() {
  while (!early_.empty())
    drop(early_.begin()->first, name_of_this() + " ends");
}

caf::result<proto::StoreOpened> store_server::on_open(const proto::StoreOpen& x) {
  if (x.elements() != elements_ || x.servers() != servers_ || x.server() != index_)
    return make_error(
      errc::malformed,
      name_of_this() + " is number " + std::to_string(index_) + " of " + std::to_string(servers_)
        + " in a store of " + std::to_string(elements_) + " elements; the client expects number "
        + std::to_string(x.server()) + " of " + std::to_string(x.servers()) + " with "
        + std::to_string(x.elements())
        + " elements: clients and servers need the same options, and addresses in the same order");
  if (!order_.open(x.client(), x.again()))
    return make_error(errc::fenced,
                      name_of_this()
                        + " does not know this client any more: the server has restarted, and "
                          "its values are lost; make a new client");
  for (auto i = early_.begin(); i != early_.end();) {
    const auto client = (i++)->first;
    if (!order_.knows(client))
      drop(client, name_of_this() + " has too many clients, and has forgotten this one");
  }
  return proto::StoreOpened{};
}

void store_server::on_close(const proto::StoreClose& x) {
  order_.close(x.client());
  drop(x.client(), "the client has ended");
}

void store_server::drop(std::uint64_t client, const std::string& reason) {
  if (auto waiting = early_.extract(client))
    for (auto& [number, x] : waiting.mapped())
      x.promise.deliver(make_error(errc::interrupted, reason));
}

proto::StoreAnswer store_server::header() const {
  proto::StoreAnswer result;
  result.set_version(values_.version());
  return result;
}

caf::result<proto::StoreAnswer, payload> store_server::on_request(const proto::StoreRequest& x,
                                                                  const payload& values) {
  if (!order_.knows(x.client()))
    return make_error(errc::fenced,
                      name_of_this()
                        + " does not know the client of an operation: the client has not "
                          "opened the store, or the server has forgotten it");
  std::string problem;
  auto ranges = ranges_of(x, values, values_.where(), problem);
  const auto turn = order_.judge(x.client(), x.number());
  if (problem.empty() && turn == store_order::turn::impossible)
    problem = "number " + std::to_string(x.number()) + " is out of turn";
  if (problem.empty() && turn == store_order::turn::early) {
    std::size_t bytes = values.size();
    if (const auto waiting = early_.find(x.client()); waiting != early_.end())
      for (const auto& [number, other] : waiting->second)
        bytes += other.values.size();
    if (bytes > store_window::bytes(values_.where().size()))
      problem = "too many operations that arrived before earlier ones: " + std::to_string(bytes)
        + " bytes wait";
  }
  if (!problem.empty())
    return make_error(errc::malformed, name_of_this() + " refuses an operation: " + problem);
  if (turn == store_order::turn::early) {
    const auto promise = make_response_promise<proto::StoreAnswer, payload>();
    auto& waiting = early_[x.client()];
    if (const auto repeated = waiting.find(x.number()); repeated != waiting.end())
      repeated->second.promise.deliver(make_error(errc::interrupted, "it was sent again"));
    waiting.insert_or_assign(x.number(), early{x, std::move(ranges), values, promise});
    return promise;
  }
  auto pulled = carry_out(x, ranges, values, turn == store_order::turn::done);
  auto result = header();
  go_on(x.client());
  return {std::move(result), std::move(pulled)};
}

/// Executes an operation, and returns the values that it pulls.
/// @param again true if the operation was executed before; a push or an assignment is then not
/// executed again
payload store_server::carry_out(const proto::StoreRequest& x, std::span<const range> ranges,
                                const payload& values, bool again) {
  if (!again && x.push())
    values_.push(ranges, values.as_floats());
  if (!again && x.assign())
    values_.assign(ranges, values.as_floats());
  if (!again)
    order_.done(x.client());
  return x.pull() ? values_.pull(ranges) : payload{};
}

/// Executes operations of the client that arrived too early and are due now.
void store_server::go_on(std::uint64_t client) {
  const auto found = early_.find(client);
  if (found == early_.end())
    return;
  auto& waiting = found->second;
  for (;;) {
    const auto turn =
      waiting.empty() ? store_order::turn::early : order_.judge(client, waiting.begin()->first);
    if (turn == store_order::turn::early)
      break;
    auto x = std::move(waiting.extract(waiting.begin()).mapped());
    auto pulled = carry_out(x.header, x.ranges, x.values, turn == store_order::turn::done);
    x.promise.deliver(header(), std::move(pulled));
  }
  if (waiting.empty())
    early_.erase(found);
}

} // namespace troupe
