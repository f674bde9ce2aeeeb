#include "actors/collective/collective.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/basp_transport.hpp"
#include "actors/collective/collective_node.hpp"
#include "kernels/error.hpp"

#include <caf/io/all.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds shortest_deadline{20};

void check(const collective_options& options, std::size_t ranks) {
  if (ranks == 0)
    throw input_error{"a collective of 0 ranks: expected at least 1"};
  if (options.chunk_bytes < sizeof(double))
    throw input_error{"collective_options::chunk_bytes is " + std::to_string(options.chunk_bytes)
                      + ": expected at least " + std::to_string(sizeof(double))};
  if (options.deadline < shortest_deadline)
    throw input_error{"collective_options::deadline is " + std::to_string(options.deadline.count())
                      + " ms: expected at least " + std::to_string(shortest_deadline.count())};
}

collective_member_actor spawn_member(caf::actor_system& sys, const collective_options& options,
                                     std::size_t rank, std::size_t ranks) {
  member_options how;
  how.rank = rank;
  how.ranks = ranks;
  how.schedule = options.schedule;
  how.chunk_bytes = options.chunk_bytes;
  how.deadline = options.deadline;
  // Detached, because a member computes sums.
  return sys.spawn<collective_member, caf::detached>(how);
}

[[noreturn]] void rethrow(const caf::error& error) {
  if (auto failure = failure_of(error))
    throw collective_error{*failure};
  if (code_of(error) == errc::bad_input)
    throw std::invalid_argument{explain(error)};
  collective_failure failure;
  failure.code = code_of(error) == errc::none ? errc::failed : code_of(error);
  failure.text = explain(error);
  throw collective_error{std::move(failure)};
}

template <class T>
constexpr auto kind_of = sizeof(T) == 4 ? element_kind::float32 : element_kind::float64;

template <class T>
void replace_by_sum(collective& group, std::span<T> x) {
  auto own = payload::allocate(x.size_bytes());
  std::ranges::copy(std::as_bytes(x), own.mutable_data());
  const auto sum = group.all_reduce(std::move(own), kind_of<T>);
  std::ranges::copy(sum.bytes(), std::as_writable_bytes(x).data());
}

} // namespace

collective_error::collective_error(collective_failure failure)
  : std::runtime_error(failure.text), failure_(std::move(failure)) {}

collective_error::~collective_error() = default;

/// Ends everything in order: the member says goodbye, its node closes the links, and the last
/// messages are written.
class collective::state {
public:
  state(caf::actor_system& sys, std::size_t rank, std::size_t ranks, collective_member_actor member)
    : rank_(rank), ranks_(ranks), member_(std::move(member)), self_(sys) {}

  ~state() {
    self_->send_exit(member_, caf::exit_reason::user_shutdown);
    self_->wait_for(member_);
    if (node_)
      self_->wait_for(node_);
    if (port_ != 0)
      self_->system().middleman().unpublish(caf::actor_cast<caf::actor>(node_), port_);
    if (channels_)
      channels_->stop();
  }

  state(const state&) = delete;
  state& operator=(const state&) = delete;

  void connect(const collective_options& options) {
    std::string host;
    std::uint16_t port = 0;
    split_address(options.addresses[rank_], host, port);
    channel_host_options channels;
    channels.address = host;
    channels.local = options.share_memory;
    channels.grace = std::min(channels.grace, options.deadline);
    channels.last_words = options.deadline;
    channels.outlived = true;
    try {
      channels_ = std::make_shared<channel_host>(self_->system(), channels);
    } catch (const std::system_error& error) {
      throw input_error{"cannot listen on " + host + ": " + error.what()};
    }
    collective_node_options how;
    how.rank = rank_;
    how.addresses = options.addresses;
    how.member = member_;
    how.net = std::make_shared<basp_transport>(self_->system());
    how.links.channels = channels_;
    how.patience = options.connect_timeout;
    how.incarnation = std::random_device{}();
    node_ = self_->system().spawn<collective_node>(std::move(how));
    port_ = basp_transport::listen(self_->system(), caf::actor_cast<caf::strong_actor_ptr>(node_),
                                   host, port);
    self_->request(node_, caf::infinite, connect_ranks{})
      .receive([](ranks_connected) {}, [](const caf::error& error) { rethrow(error); });
  }

  payload all_reduce(payload values, element_kind kind) {
    payload result;
    self_->request(member_, caf::infinite, troupe::all_reduce{std::move(values), kind})
      .receive([&](const all_reduced& x) { result = x.sum; },
               [](const caf::error& error) { rethrow(error); });
    return result;
  }

  std::size_t rank_;
  std::size_t ranks_;
  collective_member_actor member_;

private:
  collective_node_actor node_;
  std::uint16_t port_ = 0;
  std::shared_ptr<channel_host> channels_;
  caf::scoped_actor self_;
};

collective::collective(std::unique_ptr<state> x) : state_(std::move(x)) {}
collective::collective(collective&& other) noexcept = default;
collective& collective::operator=(collective&& other) noexcept = default;
collective::~collective() = default;

std::vector<collective> collective::in_one_system(caf::actor_system& sys, std::size_t ranks,
                                                  const collective_options& options) {
  check(options, ranks);
  std::vector<collective> result;
  meet_members all;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto member = spawn_member(sys, options, r, ranks);
    all.peers.emplace_back(member);
    result.push_back(collective{std::make_unique<state>(sys, r, ranks, std::move(member))});
  }
  for (auto& x : result) {
    auto others = all;
    others.peers[x.rank()] = nullptr;
    caf::anon_send(x.state_->member_, std::move(others));
  }
  return result;
}

collective collective::connect(caf::actor_system& sys, const collective_options& options) {
  const auto ranks = options.addresses.size();
  check(options, ranks);
  if (options.rank >= ranks)
    throw input_error{"rank " + std::to_string(options.rank) + " of a collective with "
                      + std::to_string(ranks) + " addresses: ranks count from 0"};
  for (const auto& address : options.addresses) {
    std::string host;
    std::uint16_t port = 0;
    if (!split_address(address, host, port) || port == 0)
      throw input_error{"'" + address + "' in collective_options::addresses is not host:port"};
  }
  if (!sys.has_middleman())
    throw input_error{"a collective of processes needs the framework's network module: call "
                      "load<caf::io::middleman>() on the configuration of the actor system"};
  auto x = std::make_unique<state>(sys, options.rank, ranks,
                                   spawn_member(sys, options, options.rank, ranks));
  if (ranks == 1)
    caf::anon_send(x->member_, meet_members{std::vector<collective_peer>(1)});
  else
    x->connect(options);
  return collective{std::move(x)};
}

std::size_t collective::rank() const noexcept {
  return state_->rank_;
}

std::size_t collective::ranks() const noexcept {
  return state_->ranks_;
}

collective_actor collective::member() const {
  return state_->member_;
}

payload collective::all_reduce(payload values, element_kind kind) {
  return state_->all_reduce(std::move(values), kind);
}

void collective::all_reduce(std::span<float> x) {
  replace_by_sum(*this, x);
}

void collective::all_reduce(std::span<double> x) {
  replace_by_sum(*this, x);
}

} // namespace troupe
