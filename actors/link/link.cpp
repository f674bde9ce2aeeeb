#include "actors/link/link.hpp"

#include "messages/configure.hpp"
#include "messages/errors.hpp"
#include "messages/scheduler.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

namespace troupe {

namespace {

struct sweep {};

/// A link sends this to itself at regular times, to show the peer that it is alive, and to check
/// the peer. Only the newest series of these messages continues.
struct sign_of_life {
  std::uint64_t series = 0;
};

/// A link sends this to itself with a delay. It arrives when the time in which both ends may
/// introduce themselves is over.
struct introduction_limit {};

/// A link that has offered the peer a channel sends this to itself with a delay. It arrives when
/// the time in which the peer may connect is over.
struct offer_limit {};

constexpr std::chrono::seconds introduction_time{10};

/// How long the peer may take to connect to an offered channel. If the peer's first connection
/// breaks, the peer may notice this only after stream_channel::first_suspicion, and then connects
/// once more.
constexpr std::chrono::milliseconds offer_time = 2 * stream_channel::first_suspicion;

/// The size in bytes of a message's payload, which is its last element. 0 if the message has no
/// payload.
std::size_t payload_size(const caf::message& content) {
  const auto n = content.size();
  return n > 0 && content.match_element<payload>(n - 1) ? content.get_as<payload>(n - 1).size() : 0;
}

/// The text of an error if only one of two nodes has a secret.
std::string secret_problem(const task_name& peer, bool peer_has_none) {
  return to_string(peer)
    + (peer_has_none
         ? " has no secret, and this cluster has one: give it the same secret_file in its cluster "
           "file as here"
         : " wants a secret, and this node has none: give both the same secret_file in their "
           "cluster files");
}

std::string secret_differs(const task_name& peer) {
  return to_string(peer) + " has another secret: give it the same secret_file as here";
}

payload exchange_payload(caf::message& content, payload with) {
  return std::exchange(content.get_mutable_as<payload>(content.size() - 1), std::move(with));
}

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sweep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sign_of_life)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::introduction_limit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::offer_limit)

namespace troupe {

link::link(caf::actor_config& cfg, caf::actor owner, std::shared_ptr<directory> local, dial_to how,
           link_options options)
  : super(cfg), owner_(std::move(owner)), local_(std::move(local)), how_(std::move(how)),
    options_(options) {}

link::link(caf::actor_config& cfg, caf::actor owner, std::shared_ptr<directory> local,
           accept_from how, link_options options)
  : super(cfg), owner_(std::move(owner)), local_(std::move(local)), how_(std::move(how)),
    options_(options) {}

link::~link() = default;

// True if the peer has sent the current message. Handlers must check this, because any actor can
// send messages to a link.
bool link::from_peer() const {
  // The framework's getter is not const.
  return peer_ && const_cast<link*>(this)->current_sender() == peer_;
}

template <class... Ts>
auto link::by_peer(void (link::*handle)(const Ts&...)) {
  return [this, handle](const Ts&... xs) {
    if (from_known_peer())
      (this->*handle)(xs...);
  };
}

caf::behavior link::make_behavior() {
  set_down_handler([this](caf::down_msg& x) {
    if (x.source == owner_.address())
      quit();
    else
      on_handle_lost(explain(x.reason));
  });
  // If a message cannot be decoded, it arrives with a type that has no handler below.
  set_default_handler(
    [this](caf::scheduled_actor*, caf::message_view&) -> caf::result<caf::message> {
      if (from_known_peer())
        shut(to_string(peer_task_) + " sent a message that cannot be decoded");
      return caf::sec::unexpected_message;
    });
  monitor(owner_);
  session_ = std::make_shared<link_session>(system(), local_, ctrl(), options_.meter);
  session_->limit(options_.limits());
  delayed_send(this, introduction_time, introduction_limit{});
  greet();
  return {
    [this](const proto::Welcome& x) { on_welcome(x); },
    [this](const proto::Proof& x) {
      if (from_peer())
        on_proof(x);
    },
    by_peer(&link::on_channel_refused),
    [this](const proto::Failure& x) { on_refused(x); },
    [this](const channel_settled& x) { on_channel_settled(x); },
    [this](const channel_lost& x) { lose(x.reason); },
    [this](outbound& x) { on_outbound(x); },
    [this](const message_refused& x) {
      send(owner_, link_notice{"refused: " + x.text + "; others like it are counted, not shown"});
    },
    by_peer(&link::on_frame),
    by_peer(&link::on_chunk),
    by_peer(&link::on_credit),
    [this](sweep) { on_sweep(); },
    [this](sign_of_life x) {
      if (x.series == series_)
        on_sign_of_life();
    },
    [this](introduction_limit) { on_introduction_limit(); },
    [this](offer_limit) {
      if (offer_)
        lose("it did not connect");
    },
    [this](const link_notice& x) { send(owner_, x); },
    [this](const end_link& x) { lose(x.reason); },
    [this](const change_limits& x) { on_limits(x); },
  };
}

void link::greet() {
  if (!options_.secret.empty())
    nonce_ = random_text();
  if (auto* dial = std::get_if<dial_to>(&how_)) {
    proto::Hello hello;
    hello.set_wire_version(wire_version);
    *hello.mutable_task() = to_proto(dial->self_task);
    hello.set_incarnation(dial->incarnation);
    hello.set_nonce(nonce_);
    peer_task_ = dial->peer_task;
    monitor(dial->peer_node);
    send(caf::actor_cast<caf::actor>(dial->peer_node), std::move(hello));
    return;
  }
  auto& accepted = std::get<accept_from>(how_);
  peer_ = accepted.peer_link;
  monitor(peer_);
  const auto& hello = accepted.hello;
  peer_nonce_ = hello.nonce();
  if (!from_proto(hello.task(), peer_task_)) {
    send(caf::actor_cast<caf::actor>(peer_), make_welcome());
    shut("a peer introduced itself as unknown job '" + hello.task().job() + "'");
  } else if (options_.secret.empty() && peer_nonce_.empty()) {
    welcome();
  } else {
    auto x = make_welcome();
    x.set_nonce(nonce_);
    if (!options_.secret.empty() && !peer_nonce_.empty())
      x.set_proof(proof_of(link_side::dialled, introduction({peer_task_, hello.incarnation()}),
                           options_.secret));
    send(caf::actor_cast<caf::actor>(peer_), x);
    // A peer without a secret learns from this Welcome that this end has one, and reports the
    // problem, too.
    if (x.proof().empty())
      refuse_newcomer(secret_problem(peer_task_, peer_nonce_.empty()));
  }
}

proto::Welcome link::make_welcome() const {
  const auto& accepted = std::get<accept_from>(how_);
  proto::Welcome result;
  result.set_wire_version(wire_version);
  *result.mutable_task() = to_proto(accepted.self_task);
  result.set_incarnation(accepted.incarnation);
  return result;
}

// Accepts the peer: it has proved that it knows the secret, or the cluster has no secret.
void link::welcome() {
  auto x = make_welcome();
  // Call park() before the peer can send anything over a channel.
  if (std::get<accept_from>(how_).parked)
    session_->park();
  introduce(std::get<accept_from>(how_).hello.incarnation());
  if (options_.channels) {
    offer_ = options_.channels->offer(channel_listener());
    *x.mutable_channel() = *offer_;
    delayed_send(this, offer_time, offer_limit{});
  }
  send(caf::actor_cast<caf::actor>(peer_), std::move(x));
  if (!offer_)
    announce_up();
}

void link::refuse_newcomer(const std::string& text) {
  send(owner_, link_notice{"refused " + text});
  shut(text);
}

link_introduction link::introduction(const link_peer& peer) const {
  if (const auto* dial = std::get_if<dial_to>(&how_))
    return {{dial->self_task, dial->incarnation}, peer, nonce_, peer_nonce_};
  const auto& accepted = std::get<accept_from>(how_);
  return {peer, {accepted.self_task, accepted.incarnation}, peer_nonce_, nonce_};
}

void link::on_proof(const proto::Proof& x) {
  const auto* accepted = std::get_if<accept_from>(&how_);
  if (!accepted || introduced_ || options_.secret.empty())
    return;
  const auto expected =
    proof_of(link_side::dialling, introduction({peer_task_, accepted->hello.incarnation()}),
             options_.secret);
  if (equal_in_constant_time(x.proof(), expected))
    welcome();
  else
    refuse_newcomer(secret_differs(peer_task_));
}

// Checks the origin and content of a Welcome. Returns false if it does not come from the dialled
// node. Ends the link and returns false if the peer has another version or runs another task. If
// the cluster has a secret, the dialled node sends two Welcomes.
bool link::hear_welcome(const proto::Welcome& x) {
  const auto* dial = std::get_if<dial_to>(&how_);
  const auto& sender = current_sender();
  if (!dial || introduced_ || !sender || sender->node() != dial->peer_node->node()
      || (peer_ && sender != peer_))
    return false;
  if (!peer_) {
    peer_ = sender;
    monitor(peer_);
  }
  if (x.wire_version() != wire_version) {
    shut("the peer speaks wire version " + std::to_string(x.wire_version()) + ", this node "
         + std::to_string(wire_version) + ": run the same troupe version on all nodes");
    return false;
  }
  task_name peer;
  if (!from_proto(x.task(), peer) || peer != peer_task_) {
    shut("the node at that address is " + x.task().job() + '/' + std::to_string(x.task().index())
         + ", not " + to_string(peer_task_) + ": check the cluster file");
    return false;
  }
  return true;
}

// Checks the peer's proof, and sends the proof of this node. Returns true if nothing is left to
// prove. Returns false if the second Welcome must follow, or if the link has ended.
bool link::prove(const proto::Welcome& x) {
  if (proven_ || (options_.secret.empty() && x.nonce().empty()))
    return true;
  if (options_.secret.empty() || x.nonce().empty()) {
    shut(secret_problem(peer_task_, x.nonce().empty()));
    return false;
  }
  peer_nonce_ = x.nonce();
  const auto known = introduction({peer_task_, x.incarnation()});
  proto::Proof own;
  own.set_proof(proof_of(link_side::dialling, known, options_.secret));
  // Send the proof even if the secrets differ. Otherwise only this node would report the
  // difference.
  send(caf::actor_cast<caf::actor>(peer_), std::move(own));
  proven_ = equal_in_constant_time(x.proof(), proof_of(link_side::dialled, known, options_.secret));
  if (!proven_)
    shut(secret_differs(peer_task_));
  return false;
}

void link::on_welcome(const proto::Welcome& x) {
  if (!hear_welcome(x) || !prove(x))
    return;
  introduce(x.incarnation());
  if (!x.has_channel())
    announce_up();
  else if (options_.channels)
    options_.channels->connect(x.channel(), std::get<dial_to>(how_).address, channel_listener());
  else
    on_channel_settled({"it is disabled"});
}

// The dialled node refuses this node: it sends a Failure, with the reason, instead of a Welcome.
void link::on_refused(const proto::Failure& x) {
  const auto* dial = std::get_if<dial_to>(&how_);
  if (!dial || peer_ || current_sender() != dial->peer_node)
    return;
  constexpr std::size_t longest = 1000;
  shut(to_string(peer_task_) + " refuses this node: " + x.reason().substr(0, longest), {}, true);
}

void link::introduce(std::uint64_t incarnation) {
  peer_incarnation_ = incarnation;
  introduced_ = true;
  if (auto* dial = std::get_if<dial_to>(&how_))
    dial->hang_up = {};
  session_->introduce({peer_task_, incarnation});
}

void link::on_introduction_limit() {
  if (introduced_)
    return;
  // The framework removes the state of a closed connection late, and finds it by the number of the
  // descriptor. If a new connection has got this number, it loses its state. Without hang_up(), the
  // next attempt would use the same connection again.
  if (const auto* dial = std::get_if<dial_to>(&how_); dial && dial->hang_up)
    dial->hang_up();
  lose("it did not introduce itself");
}

void link::announce_up() {
  if (owner_)
    send(owner_, link_up{peer_task_, peer_incarnation_, session_});
}

// The result is called on the thread that reads the channel.
channel_maker::on_channel link::channel_listener() {
  return [session = session_, self = caf::actor_cast<caf::actor_addr>(this)](
           const channel_maker::channel_ptr& channel, const std::string& problem) {
    const auto tell = [self](auto what) {
      if (auto link = caf::actor_cast<caf::actor>(self))
        caf::anon_send(link, std::move(what));
    };
    if (channel) {
      const bool used = session->use(channel);
      channel->listen({
        [session](const proto::Frame& frame, caf::message content) {
          const receivers_run_here here;
          session->receive(frame, std::move(content), nullptr);
        },
        [tell](const std::string& reason) { tell(channel_lost{reason}); },
      });
      if (!used)
        channel->end(); // The link has ended in the meantime.
    }
    tell(channel_settled{problem});
  };
}

void link::on_limits(const change_limits& x) {
  options_.suspect_after = x.suspect_after;
  options_.window = x.channel.window;
  options_.transfer.max_bytes = x.channel.max_bytes;
  // With a shorter limit, the peer expects signs of life sooner than the next one is due.
  begin_signs_of_life();
}

void link::on_channel_settled(const channel_settled& x) {
  offer_.reset();
  if (!x.problem.empty()) {
    spdlog::debug("no channel to {}: {}", to_string(peer_task_), x.problem);
    if (options_.channels && owner_)
      send(owner_,
           link_notice{"no second connection to " + to_string(peer_task_) + " (" + x.problem
                       + "): its messages use the first one, which is slower and is not "
                         "restored if it breaks; open the port of --channel-port in the "
                         "firewall"});
    send(caf::actor_cast<caf::actor>(peer_), proto::ChannelRefused{});
  }
  announce_up();
  begin_signs_of_life();
}

// The CAF handle of the peer has become invalid. A link with a channel no longer needs it.
void link::on_handle_lost(const std::string& reason) {
  if (session_->has_channel())
    spdlog::debug("{}: {}; the channel stays open", to_string(peer_task_), reason);
  else
    lose(reason);
}

void link::on_channel_refused(const proto::ChannelRefused&) {
  if (!offer_)
    return;
  options_.channels->withdraw(*offer_);
  offer_.reset();
  announce_up();
}

// -- outgoing -----------------------------------------------------------------------------------

void link::on_outbound(outbound& x) {
  auto peer = caf::actor_cast<caf::actor>(peer_);
  const auto size = payload_size(x.content);
  if (size <= options_.transfer.chunk_bytes) {
    send(peer, std::move(x.frame), std::move(x.content));
    return;
  }
  auto waiting = size;
  for (auto& [id, other] : sending_)
    waiting += other.bytes;
  if (!sending_.empty() && waiting > options_.window) {
    lose(beyond_window(options_.window));
    return;
  }
  x.frame.set_chunked_bytes(size);
  const ticket id{x.frame.kind(), x.frame.id()};
  outgoing_transfer transfer{exchange_payload(x.content, {}), options_.transfer};
  auto [pos, added] = sending_.emplace(id, sending{std::move(transfer), clock().now(), size});
  send(peer, std::move(x.frame), std::move(x.content));
  start_sweeping();
  send_chunks(id, pos->second);
}

void link::send_chunks(const ticket& id, sending& x) {
  while (auto chunk = x.transfer.next()) {
    proto::Chunk header;
    header.set_kind(id.first);
    header.set_id(id.second);
    header.set_offset(chunk->offset);
    send(caf::actor_cast<caf::actor>(peer_), std::move(header), std::move(chunk->data));
  }
}

void link::on_credit(const proto::Credit& x) {
  const ticket id{x.kind(), x.id()};
  auto i = sending_.find(id);
  if (i == sending_.end())
    return;
  if (!i->second.transfer.credit(x.received())) {
    shut(to_string(peer_task_) + " acknowledged bytes that were never sent");
    return;
  }
  const auto acknowledged = x.received() - i->second.credited;
  i->second.credited = x.received();
  i->second.moved = clock().now();
  session_->meter()->count(acknowledged, i->second.moved);
  if (i->second.transfer.done())
    sending_.erase(i);
  else
    send_chunks(id, i->second);
}

// -- incoming -----------------------------------------------------------------------------------

void link::on_frame(const proto::Frame& x, const caf::message& content) {
  if (content.empty() || !proto::Frame::Kind_IsValid(x.kind())) {
    shut(to_string(peer_task_) + " sent a message that cannot be decoded");
    return;
  }
  if (x.chunked_bytes() == 0) {
    session_->receive(x, content, context());
    return;
  }
  auto announced = x.chunked_bytes();
  for (auto& [id, other] : receiving_)
    announced += other.frame.chunked_bytes();
  if (x.chunked_bytes() > options_.transfer.max_bytes || announced > options_.transfer.max_bytes) {
    shut(to_string(peer_task_) + " announced a payload of " + std::to_string(x.chunked_bytes())
         + " bytes, which exceeds the limit");
    return;
  }
  if (!content.match_element<payload>(content.size() - 1)) {
    shut(to_string(peer_task_) + " announced a payload for a message without one");
    return;
  }
  try {
    receiving_.insert_or_assign(
      ticket{x.kind(), x.id()},
      receiving{x, content, incoming_transfer{x.chunked_bytes()}, clock().now()});
  } catch (const std::bad_alloc&) {
    shut("no memory for a payload of " + std::to_string(x.chunked_bytes()) + " bytes from "
         + to_string(peer_task_));
    return;
  }
  start_sweeping();
}

void link::on_chunk(const proto::Chunk& x, const payload& data) {
  auto i = receiving_.find(ticket{x.kind(), x.id()});
  if (i == receiving_.end())
    return;
  auto& state = i->second;
  if (!state.transfer.accept(x.offset(), data)) {
    spdlog::warn("link to {}: a piece of a transfer is missing; it is given up",
                 to_string(peer_task_));
    receiving_.erase(i);
    return;
  }
  state.moved = clock().now();
  session_->meter()->count(data.size(), state.moved);
  proto::Credit credit;
  credit.set_kind(x.kind());
  credit.set_id(x.id());
  credit.set_received(state.transfer.received());
  send(caf::actor_cast<caf::actor>(peer_), std::move(credit));
  if (!state.transfer.complete())
    return;
  exchange_payload(state.content, state.transfer.take());
  session_->receive(state.frame, std::move(state.content), context());
  receiving_.erase(i);
}

// -- end ----------------------------------------------------------------------------------------

void link::lose(const std::string& cause) {
  shut("connection to " + to_string(peer_task_) + " lost: " + cause, cause);
}

void link::shut(const std::string& reason, const std::string& cause, bool refused) {
  if (auto* dial = std::get_if<dial_to>(&how_))
    dial->hang_up = {};
  session_->close(make_error(errc::link_lost, reason), context());
  send(owner_,
       link_down{peer_task_, reason, cause.empty() ? reason : cause,
                 std::holds_alternative<dial_to>(how_), refused});
  quit();
}

void link::on_exit() {
  if (offer_)
    options_.channels->withdraw(*offer_);
  if (session_)
    session_->close(make_error(errc::link_lost, "this node has ended"), context());
  sending_.clear();
  receiving_.clear();
  peer_ = nullptr;
  owner_ = nullptr;
}

void link::start_sweeping() {
  if (sweeping_)
    return;
  sweeping_ = true;
  delayed_send(this, options_.stall_timeout / 2, sweep{});
}

void link::begin_signs_of_life() {
  ++series_;
  on_sign_of_life();
}

void link::on_sign_of_life() {
  if (!session_->has_channel())
    return;
  session_->forget_before(clock().now() - options_.request_limit);
  if (session_->keep_alive(options_.suspect_after))
    delayed_send(this, options_.suspect_after / 8, sign_of_life{series_});
  else
    lose("nothing was received from it for " + std::to_string(options_.suspect_after.count())
         + " ms");
}

// Gives up all transfers that made no progress for stall_timeout. If one of them belongs to a
// one-way message (such as a vector of a ring), the link ends. No actor would send that message
// again. Requests and answers are only dropped, to free memory: the actors that sent the requests
// have their own deadlines.
void link::on_sweep() {
  const auto now = clock().now();
  const auto limit = now - options_.stall_timeout;
  const auto is_lost = [&](auto& x) {
    return x.first.first == proto::Frame::ONE_WAY && x.second.moved < limit;
  };
  if (std::ranges::any_of(sending_, is_lost) || std::ranges::any_of(receiving_, is_lost)) {
    lose("a message made no progress for " + std::to_string(options_.stall_timeout.count())
         + " ms");
    return;
  }
  const bool waiting = session_->forget_before(now - options_.request_limit);
  std::erase_if(sending_, [&](auto& x) { return x.second.moved < limit; });
  std::erase_if(receiving_, [&](auto& x) { return x.second.moved < limit; });
  sweeping_ = false;
  if (waiting || !sending_.empty() || !receiving_.empty())
    start_sweeping();
}

} // namespace troupe
