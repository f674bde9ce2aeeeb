#include "actors/collective/collective.hpp"

#include "actors/cluster/address.hpp"
#include "actors/cluster/peer_host.hpp"
#include "kernels/error.hpp"
#include "messages/scheduler.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds shortest_collective_deadline{20};

void check(const collective_options& options, std::size_t ranks) {
  if (ranks == 0)
    throw input_error{"a collective of 0 ranks: expected at least 1"};
  if (options.chunk_bytes < sizeof(double))
    throw input_error{"collective_options::chunk_bytes is " + std::to_string(options.chunk_bytes)
                      + ": expected at least " + std::to_string(sizeof(double))};
  if (options.deadline < shortest_collective_deadline)
    throw input_error{"collective_options::deadline is " + std::to_string(options.deadline.count())
                      + " ms: expected at least "
                      + std::to_string(shortest_collective_deadline.count())};
}

std::string_view host_of(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

std::size_t ranks_on(std::string_view host, const collective_options& options) {
  return static_cast<std::size_t>(
    std::ranges::count(options.addresses, host, [](auto& x) { return host_of(x); }));
}

bool on_one_host(const collective_options& options) {
  const auto& all = options.addresses;
  const bool threads = all.empty();
  return threads || (options.share_memory && ranks_on(host_of(all[0]), options) == all.size());
}

collective_member_actor spawn_member(caf::actor_system& sys, const collective_options& options,
                                     std::size_t rank, std::size_t ranks) {
  member_options how;
  how.rank = rank;
  how.ranks = ranks;
  how.schedule = options.schedule;
  how.in_shared_memory = on_one_host(options);
  how.max_bytes = options.max_bytes;
  how.chunk_bytes = options.chunk_bytes;
  how.deadline = options.deadline;
  return sys.spawn<collective_member>(how);
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

/// The state of a `collective`. Its destructor first ends the actor `member_`, and this actor then
/// tells the other ranks that it leaves. Afterwards, `host_` closes the links.
class collective::state {
public:
  state(caf::actor_system& sys, std::size_t rank, std::size_t ranks, collective_member_actor member)
    : rank_(rank), ranks_(ranks), member_(std::move(member)), self_(sys) {}

  ~state() {
    self_->send_exit(member_, caf::exit_reason::user_shutdown);
    self_->wait_for(member_);
  }

  state(const state&) = delete;
  state& operator=(const state&) = delete;

  void connect(const collective_options& options) {
    peer_host_options how;
    how.node.self = task_of(rank_);
    how.node.resident = caf::actor_cast<caf::strong_actor_ptr>(member_);
    how.node.service = proto::RING_NODE;
    for (std::size_t r = 0; r < ranks_; ++r)
      if (r != rank_)
        how.node.peers.push_back(
          {task_of(r), "rank " + std::to_string(r), options.addresses[r], r > rank_});
    how.node.patience = options.connect_timeout;
    how.node.links.transfer.max_bytes = options.max_bytes;
    how.address = options.addresses[rank_];
    how.by = options.share_memory ? peer_host_options::transport::automatic
                                  : peer_host_options::transport::tcp;
    how.deadline = options.deadline;
    host_.emplace(self_->system(), std::move(how));
    has_core_ = ranks_on(host_of(options.addresses[rank_]), options)
      <= std::max(std::thread::hardware_concurrency(), 1U);
    const auto found = host_->connect();
    if (!found)
      rethrow(found.error());
    meet_members all;
    for (const auto& x : found->residents)
      all.peers.push_back(caf::actor_cast<collective_peer>(x));
    all.peers.insert(all.peers.begin() + static_cast<std::ptrdiff_t>(rank_), collective_peer{});
    caf::anon_send(member_, std::move(all));
  }

  payload all_reduce(payload values, element_kind kind) {
    payload result;
    auto request = [&] {
      std::optional<receivers_run_here> here;
      if (host_ || values.size() <= small_piece)
        here.emplace();
      return self_->request(member_, caf::infinite, troupe::all_reduce{std::move(values), kind});
    }();
    if (host_ && has_core_)
      host_->read_until([this] { return self_->has_next_message(); });
    request.receive([&](const all_reduced& x) { result = x.sum; },
                    [](const caf::error& error) { rethrow(error); });
    return result;
  }

  std::size_t rank_;
  std::size_t ranks_;
  collective_member_actor member_;

private:
  static task_name task_of(std::size_t rank) {
    return {job_kind::worker, static_cast<std::uint32_t>(rank)};
  }

  std::optional<peer_host> host_;
  /// True if this host has a processor for each of its ranks, so that waiting ranks may poll.
  bool has_core_ = false;
  caf::scoped_actor self_;
};

collective::collective(std::unique_ptr<state> x) : state_(std::move(x)) {}
collective::collective(collective&& other) noexcept = default;
collective& collective::operator=(collective&& other) noexcept = default;
collective::~collective() = default;

std::vector<collective> collective::in_one_system(caf::actor_system& sys, std::size_t ranks,
                                                  const collective_options& options) {
  check(options, ranks);
  auto own = options;
  own.addresses.clear();
  own.share_memory = true;
  std::vector<collective> result;
  meet_members all;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto member = spawn_member(sys, own, r, ranks);
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
  auto x = std::make_unique<state>(sys, options.rank, ranks,
                                   spawn_member(sys, options, options.rank, ranks));
  if (ranks == 1)
    caf::anon_send(x->member_, meet_members{std::vector<collective_peer>(1)});
  else
    x->connect(options);
  return collective{std::move(x)};
}

collective::state& collective::own_state() const {
  if (!state_)
    throw std::logic_error{"a collective that was moved from"};
  return *state_;
}

std::size_t collective::rank() const {
  return own_state().rank_;
}

std::size_t collective::ranks() const {
  return own_state().ranks_;
}

collective_actor collective::member() const {
  return own_state().member_;
}

payload collective::all_reduce(payload values, element_kind kind) {
  return own_state().all_reduce(std::move(values), kind);
}

void collective::all_reduce(std::span<float> x) {
  replace_by_sum(*this, x);
}

void collective::all_reduce(std::span<double> x) {
  replace_by_sum(*this, x);
}

} // namespace troupe
