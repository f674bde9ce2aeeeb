#include "actors/store/store.hpp"

#include "actors/store/store_inbox.hpp"
#include "actors/store/store_order.hpp"
#include "actors/store/store_state.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

namespace troupe {

namespace {

/// The largest number of operations whose results are kept for wait().
constexpr std::size_t most_results = 1024;

using clock = std::chrono::steady_clock;

std::uint64_t draw_name() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

} // namespace

store_error::store_error(store_failure failure)
  : std::runtime_error(failure.text), failure_(std::move(failure)) {}

store_error::~store_error() = default;

class store_client::state {
public:
  state(caf::actor_system& sys, const store_options& options, std::size_t servers)
    : options_(options), parts_(split_evenly(options.elements, servers)), servers_(servers),
      inbox_(sys) {}

  ~state() {
    proto::StoreClose goodbye;
    goodbye.set_client(name_);
    for (const auto& x : servers_)
      if (x.actor && x.opened && !x.failure)
        caf::anon_send(caf::actor_cast<store_actor>(x.actor), goodbye);
  }

  state(const state&) = delete;
  state& operator=(const state&) = delete;

  /// Makes this a client of servers in the same actor system.
  void use(std::span<const caf::strong_actor_ptr> actors);
  void connect(caf::actor_system& sys);
  std::uint64_t start(store_work what, const ranges& where, payload values);
  store_result wait(std::uint64_t ticket);
  void retry();
  std::size_t servers() const noexcept { return servers_.size(); }

private:
  /// A part of an operation whose server has not answered yet.
  struct sent {
    std::uint64_t ticket = 0;
    store_part part;
    /// The request's number in the inbox. 0 if the server has failed since then.
    std::uint64_t request = 0;
    clock::time_point since;
  };

  struct server {
    caf::strong_actor_ptr actor;
    bool opened = false;
    std::uint64_t operations = 0;
    std::deque<sent> unanswered;
    std::size_t bytes = 0;
    clock::time_point last_heard = clock::now();
    std::optional<store_failure> failure;
  };

  struct operation {
    /// The servers that received a part of the operation.
    std::vector<std::size_t> servers;
    store_result result;
  };

  std::string name_of(std::size_t s) const {
    return "server " + std::to_string(s)
      + (options_.addresses.empty() ? "" : " at " + options_.addresses[s]);
  }

  void find();
  void open(std::size_t s);
  void send(std::size_t s, sent& x);
  void settle(std::size_t s);
  void make_room(std::size_t s, std::size_t bytes);
  void take(std::size_t s, const sent& x, const caf::message& answer);
  [[noreturn]] void fail(std::size_t s, errc code, const std::string& what);
  [[noreturn]] void fail(std::size_t s, const caf::error& error);

  store_options options_;
  std::vector<range> parts_;
  std::vector<server> servers_;
  std::uint64_t name_ = draw_name();
  std::uint64_t tickets_ = 0;
  /// The operations whose results wait() has not returned yet, by ticket.
  std::map<std::uint64_t, operation> operations_;
  std::optional<peer_host> host_;
  inbox_owner inbox_;
};

// -- connecting ---------------------------------------------------------------------------------

void store_client::state::use(std::span<const caf::strong_actor_ptr> actors) {
  for (std::size_t s = 0; s < actors.size(); ++s) {
    servers_[s].actor = actors[s];
    open(s);
  }
}

void store_client::state::connect(caf::actor_system& sys) {
  peer_host_options how;
  how.node.self = {job_kind::worker, 0};
  how.node.service = proto::SHARD;
  for (std::size_t s = 0; s < servers_.size(); ++s)
    how.node.peers.push_back({store_task(s), "server " + std::to_string(s), options_.addresses[s]});
  how.node.patience = options_.connect_timeout;
  how.node.reconnect = true;
  how.node.links.transfer.max_bytes = options_.elements * sizeof(float);
  how.by = options_.transport;
  how.deadline = options_.deadline;
  host_.emplace(sys, std::move(how));
  find();
  for (std::size_t s = 0; s < servers_.size(); ++s)
    open(s);
}

void store_client::state::find() {
  if (!host_)
    return;
  const auto found = host_->connect();
  if (found) {
    for (std::size_t s = 0; s < servers_.size(); ++s)
      servers_[s].actor = found->residents[s];
    return;
  }
  store_failure why;
  why.code = code_of(found.error());
  why.text = explain(found.error());
  const auto failed = std::ranges::find_if(servers_, [](auto& x) { return !x.actor || x.failure; });
  why.server = static_cast<std::size_t>(failed - servers_.begin());
  throw store_error{std::move(why)};
}

void store_client::state::open(std::size_t s) {
  auto& to = servers_[s];
  proto::StoreOpen hello;
  hello.set_client(name_);
  hello.set_elements(options_.elements);
  hello.set_servers(static_cast<std::uint32_t>(servers_.size()));
  hello.set_server(static_cast<std::uint32_t>(s));
  hello.set_again(to.opened);
  const auto request = inbox_->ask(to.actor, caf::make_message(std::move(hello)));
  const auto answer = inbox_->take(request, clock::now() + options_.deadline);
  if (!answer)
    inbox_->forget(request);
  if (!answer)
    fail(s, errc::timed_out, "does not answer");
  if (answer->match_elements<caf::error>())
    fail(s, answer->get_as<caf::error>(0));
  to.opened = true;
  to.last_heard = clock::now();
  to.failure.reset();
}

void store_client::state::retry() {
  const auto failed = [](const server& x) { return x.failure.has_value(); };
  if (std::ranges::none_of(servers_, failed))
    return;
  find();
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    auto& to = servers_[s];
    if (!failed(to))
      continue;
    open(s);
    for (auto& x : to.unanswered)
      send(s, x);
  }
}

// -- operations ---------------------------------------------------------------------------------

std::uint64_t store_client::state::start(store_work what, const ranges& where, payload values) {
  auto parts = cut(what, where, values, parts_);
  values = {};
  for (const auto& x : parts)
    make_room(x.server, x.values.size());
  const auto ticket = ++tickets_;
  auto& of = operations_[ticket];
  of.result.versions.resize(servers_.size());
  if (gets_values(what) && parts.size() > 1)
    of.result.values = payload::floats(elements_of(where));
  for (auto& x : parts) {
    auto& to = servers_[x.server];
    const auto s = x.server;
    of.servers.push_back(s);
    x.header.set_client(name_);
    x.header.set_number(++to.operations);
    to.bytes += x.values.size();
    to.unanswered.push_back({ticket, std::move(x), 0, {}});
    send(s, to.unanswered.back());
  }
  if (operations_.size() > most_results)
    operations_.erase(operations_.begin());
  return ticket;
}

void store_client::state::send(std::size_t s, sent& x) {
  x.since = clock::now();
  x.request = inbox_->ask(servers_[s].actor, caf::make_message(x.part.header, x.part.values));
}

void store_client::state::make_room(std::size_t s, std::size_t bytes) {
  auto& x = servers_[s];
  const auto most = store_window::bytes(parts_[s].size());
  while (x.unanswered.size() + 1 >= store_window::operations
         || (!x.unanswered.empty() && x.bytes + bytes > most))
    settle(s);
  if (x.failure)
    throw store_error{*x.failure};
}

// Waits for the server's answer to its first unanswered operation, and takes the answer.
void store_client::state::settle(std::size_t s) {
  auto& x = servers_[s];
  if (x.failure)
    throw store_error{*x.failure};
  const auto& first = x.unanswered.front();
  if (host_)
    host_->read_until([&] { return inbox_->has(first.request); });
  const auto answer = inbox_->take(first.request, first.since + options_.deadline);
  if (!answer)
    fail(s, errc::timed_out, "does not answer");
  if (answer->match_elements<caf::error>())
    fail(s, answer->get_as<caf::error>(0));
  const auto wanted = first.part.header.pull() ? first.part.count * sizeof(float) : 0;
  if (!answer->match_elements<proto::StoreAnswer, payload>()
      || answer->get_as<payload>(1).size() != wanted)
    fail(s, errc::malformed, "sent an answer that does not fit");
  x.last_heard = clock::now();
  x.bytes -= first.part.values.size();
  take(s, first, *answer);
  x.unanswered.pop_front();
}

void store_client::state::take(std::size_t s, const sent& x, const caf::message& answer) {
  const auto of = operations_.find(x.ticket);
  if (of == operations_.end())
    return;
  auto& result = of->second.result;
  result.versions[s] = answer.get_as<proto::StoreAnswer>(0).version();
  const auto& values = answer.get_as<payload>(1);
  if (x.part.header.pull() && result.values.empty())
    result.values = values;
  else if (x.part.header.pull())
    std::ranges::copy(values.as_floats(),
                      result.values.as_mutable_floats().begin()
                        + static_cast<std::ptrdiff_t>(x.part.begin));
}

store_result store_client::state::wait(std::uint64_t ticket) {
  const auto of = operations_.find(ticket);
  if (of == operations_.end())
    throw std::invalid_argument{"ticket " + std::to_string(ticket)
                                + " has no result: wait() returned it before, or it was dropped"};
  for (const auto s : of->second.servers)
    while (!servers_[s].unanswered.empty() && servers_[s].unanswered.front().ticket <= ticket)
      settle(s);
  auto result = std::move(of->second.result);
  operations_.erase(of);
  return result;
}

void store_client::state::fail(std::size_t s, errc code, const std::string& what) {
  auto& x = servers_[s];
  const auto now = clock::now();
  const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - x.last_heard);
  x.failure = store_failure{code, s, x.last_heard,
                            name_of(s) + ' ' + what + " (" + std::to_string(x.unanswered.size())
                              + " operations have no answer; the last answer came "
                              + std::to_string(silent.count()) + " ms ago)"};
  for (auto& y : x.unanswered)
    inbox_->forget(std::exchange(y.request, 0));
  throw store_error{*x.failure};
}

void store_client::state::fail(std::size_t s, const caf::error& error) {
  const auto code = code_of(error);
  if (code == errc::none) // An error of CAF: the server's actor is gone.
    fail(s, errc::link_lost, "is gone: " + explain(error));
  fail(s, code, "reports: " + explain(error));
}

// -- the program's side -------------------------------------------------------------------------

store_client::store_client(std::unique_ptr<state> x) : state_(std::move(x)) {}
store_client::store_client(store_client&& other) noexcept = default;
store_client& store_client::operator=(store_client&& other) noexcept = default;
store_client::~store_client() = default;

store_client::state& store_client::own_state() const {
  if (!state_)
    throw std::logic_error{"a store_client that was moved from"};
  return *state_;
}

store_client store_client::in_one_system(caf::actor_system& sys,
                                         std::span<const store_host> servers) {
  const auto missing = [](const store_host& x) { return x.state_ == nullptr; };
  if (servers.empty() || std::ranges::any_of(servers, missing))
    throw input_error{
      "store_client::in_one_system: there are no servers, or a store_host was moved from"};
  auto options = servers[0].state_->options;
  options.addresses.clear();
  auto x = std::make_unique<state>(sys, options, servers.size());
  std::vector<caf::strong_actor_ptr> actors;
  for (const auto& server : servers)
    actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(server.state_->server));
  x->use(actors);
  return store_client{std::move(x)};
}

store_client store_client::connect(caf::actor_system& sys, const store_options& options) {
  check(options, options.addresses.size());
  auto x = std::make_unique<state>(sys, options, options.addresses.size());
  x->connect(sys);
  return store_client{std::move(x)};
}

store_ticket store_client::start(store_work what, const ranges& where, payload values) {
  return {own_state().start(what, where, std::move(values))};
}

store_result store_client::wait(store_ticket ticket) {
  return own_state().wait(ticket.number);
}

void store_client::retry() {
  own_state().retry();
}

std::size_t store_client::servers() const {
  return own_state().servers();
}

} // namespace troupe
