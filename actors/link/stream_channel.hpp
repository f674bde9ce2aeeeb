#pragma once

#include "actors/link/channel_limits.hpp"
#include "actors/link/loan_table.hpp"
#include "actors/link/record_reader.hpp"
#include "actors/link/sent_together.hpp"
#include "actors/payload_meter.hpp"
#include "kernels/file_descriptor.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <caf/fwd.hpp>
#include <caf/message.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

struct msghdr;

namespace troupe {

/// True if the last element of a message is a payload. No other element is a payload.
bool has_payload(const caf::message& x);

/// The text that explains why a link ends if too many bytes wait for its peer.
std::string beyond_window(std::uint64_t window);

struct stream_options {
  /// True if the peer runs on this host and the socket can pass descriptors. Payloads in shared
  /// memory are then lent to the peer instead of sent.
  bool lends = false;
  /// True if the connection may break although the peer has not ended (TCP). Messages that the peer
  /// has not acknowledged are then kept, and sent again over the next connection.
  bool resumes = false;
  /// True if on_readable() may poll the socket for a moment when the rest of a payload has not
  /// arrived. False in a simulation, because nothing arrives there while a thread polls.
  bool polls = false;
  /// The limits until the first call of limit(). Their max_bytes also limits the total size of the
  /// shared memory that the peer lends; limit() does not change that limit.
  channel_limits limits{.grace = std::chrono::seconds{5}};
  /// The channel calls this to ask its owner for a call of on_tick() soon. Called on any thread.
  std::function<void()> wake;
  /// Like `wake`, but on_tick() may be called a little later. If null, `wake` is used.
  std::function<void()> wake_later;
  /// Called when the socket is full. The callee must arrange that on_writable() is called when the
  /// socket has room again. Null if the owner calls on_writable() without being asked. The channel
  /// calls `full` and `empty` with its mutex locked, so they must not call the channel.
  std::function<void(int socket)> full;
  /// Called by on_writable() when no record waits any more. The owner need not call on_writable()
  /// again until `full` is called. May be null.
  std::function<void(int socket)> empty;
};

/// Exchanges messages between two processes over a socket. The payload of a message goes from the
/// sender's buffer to the receiver's buffer without a copy in between (sendmsg, recvmsg). If the
/// processes share memory (stream_options::lends), a large payload is not sent at all: the receiver
/// reads it in the sender's memory. The sender does not reuse this memory until the receiver has
/// released it or has ended.
///
/// A socket over which memory was lent stays open until both sides have released all lent memory,
/// even if the link has already ended. So if the peer's side of the socket closes, the peer no
/// longer reads lent memory.
///
/// A socket between hosts may break. The channel is then *cut*: messages wait until resume() gives
/// the channel another socket. The new socket then carries all messages that have not arrived.
///
/// The number of bytes that wait for the peer is bounded (channel_limits::window). If the peer
/// takes or acknowledges nothing, the bound is reached and the channel ends.
class stream_channel : public std::enable_shared_from_this<stream_channel> {
public:
  /// A payload of at least this many bytes is written from its own buffer. A smaller payload is
  /// copied into the record of its message.
  static constexpr std::size_t large = std::size_t{16} << 10;

  /// The argument of keep_alive() until both ends know the value in the job
  /// (runtime.suspect_after_ms).
  static constexpr std::chrono::milliseconds first_suspicion{10'000};

  struct events {
    /// Called for each message of the peer.
    std::function<void(const proto::Frame&, caf::message)> received;
    /// Called at most once, when nothing can be sent or received any more.
    std::function<void(const std::string& reason)> closed;
  };

  /// @param socket connected and non-blocking
  stream_channel(caf::actor_system& sys, file_descriptor socket, stream_options options);
  ~stream_channel();
  stream_channel(const stream_channel&) = delete;
  stream_channel& operator=(const stream_channel&) = delete;

  /// Sets the callbacks for the peer's messages. Call it once, on the reading thread or before that
  /// thread starts. Until then, all records except the greeting wait.
  void listen(events to);

  /// Counts the bytes of large payloads from now on. Call it before listen() and before the first
  /// call of send().
  void measure(std::shared_ptr<payload_meter> meter) { meter_ = std::move(meter); }

  /// Sends a message. Thread-safe. Messages of the same thread stay in order. If a message cannot
  /// be written at once, it waits in a queue; its payload is not copied. Does nothing once the
  /// channel is closed. Returns an error if the message cannot be encoded, or is too long.
  caf::error send(proto::Frame frame, caf::message content);

  /// Thread-safe.
  void limit(const channel_limits& x);

  /// See channel_limits. Thread-safe.
  std::chrono::milliseconds grace() const;

  /// True if the peer runs on this host, so that no network limits the channel.
  bool on_this_host() const noexcept { return same_host_; }

  /// True if large payloads do not move: see stream_options::lends. Both ends agree.
  bool lends() const noexcept { return options_.lends; }

  /// The number of bytes that wait for the peer (channel_limits::window). Thread-safe.
  std::uint64_t waiting() const;

  /// Sends the greeting: the first record over a connection, from the side that connected. It names
  /// the channel. Between hosts, the other side answers with a greeting.
  /// @param port where this process listens, so that the peer can connect to it to find out whether
  /// the process still runs; 0 in an answer
  void greet(const std::string& token, std::uint16_t port);

  /// Tells the peer that this side's link has ended. Thread-safe.
  void end();

  // -- for the thread that watches the socket --

  /// Reads available data, up to a limit. Returns true if more data may be there. The owner should
  /// then serve its other sockets before it calls this again.
  bool on_readable();

  /// Writes waiting records.
  void on_writable();

  /// Sends the acknowledgements that are due, and returns loans: it sends the numbers of all pieces
  /// of the peer's memory that this side has released.
  void on_tick();

  /// True if the socket broke. resume() or give_up() must follow. Always false if
  /// stream_options::resumes is false.
  bool cut() const;

  /// The number of times that the socket broke.
  std::uint64_t cuts() const noexcept { return cuts_; }

  /// Gives the socket to the caller, which must no longer watch it.
  file_descriptor release_socket();

  /// Continues over a new socket.
  /// @param greeting the peer's greeting on this socket; null if this side opened the connection.
  /// This side then sends its greeting first, so the peer's greeting has not arrived yet.
  void resume(file_descriptor socket, const proto::Greeting* greeting, const std::string& token);

  /// False from the moment when the socket breaks until both sides have agreed, over a new socket,
  /// where to continue.
  bool resumed() const;

  /// True if resumed(), and if a record or much data has arrived at the peer over the new socket,
  /// or no record waits for it. So this stays false in a network that loses all large packets.
  bool works() const;

  /// Ends the channel, because the owner cannot get another socket.
  void give_up(const std::string& reason);

  /// True if no record waits to be written. If `settled` is true, the peer must also have
  /// acknowledged every message and released all memory lent to it. While the socket is broken
  /// (cut), true only if the peer will send nothing more (over()): it then needs no more records.
  /// After give_up(), always true.
  bool idle(bool settled) const;

  /// From now on, this process never uses the lent memory again. A peer that is stopped may
  /// continue later, and would then read the memory.
  void keep_loans();

  /// True if neither side needs the socket any more.
  bool finished() const;

  /// The peer's greeting; empty until it has arrived.
  const proto::Greeting& greeting() const noexcept { return greeting_; }

  /// Checks that the peer is alive, and shows the peer that this side is alive. Sends a record if
  /// nothing was sent for a quarter of `suspect_after`. If nothing was received for longer than
  /// `suspect_after`, breaks a connection that can be resumed, and returns false for any other
  /// connection. Otherwise returns true. Thread-safe.
  bool keep_alive(std::chrono::nanoseconds suspect_after);

  /// The time since something was received. Thread-safe.
  std::chrono::nanoseconds silent_for() const { return now() - heard_.load(); }

  /// How long a peer that runs may take to notice that the connection broke. Thread-safe.
  std::chrono::nanoseconds unnoticed_for() const;

  /// True if nothing more will be received.
  bool over() const noexcept { return over_; }

  /// -1 if the channel has no socket.
  int socket() const;

private:
  friend class sent_together;
  class borrowed;

  struct outgoing {
    std::vector<char> head;
    payload body;
    int descriptor = -1;
    /// Keeps the descriptor open until it is written.
    payload lent = {};
    /// True for a record that must arrive even if the socket breaks: a MESSAGE, RETURN or END. Only
    /// these records are numbered and acknowledged.
    bool numbered = true;
    /// Number of the loan; 0 if the record lends nothing.
    std::uint64_t loan = 0;

    std::uint64_t bytes() const { return head.size() + body.size(); }
  };

  using clock = std::chrono::steady_clock;

  /// The time of the actor system, which may be a simulation's.
  clock::time_point now() const;

  // For sending; call these with mutex_ held.
  void lend(proto::Frame& frame, const payload& x, outgoing& out);
  /// Adds a record to the queue. write() must follow.
  void push(outgoing x);
  void push_news();
  /// Call this after push(). Writes the new records at once, unless earlier records still wait, or
  /// a sent_together object of this thread makes them wait.
  /// @param before number of records in the queue before push()
  /// @param large true if a new record has a large payload
  void write(std::size_t before, bool large = false);
  /// Writes records that have waited for the destructor of a sent_together object.
  void release();
  void flush();
  bool overflows(const payload& body, std::size_t head);
  bool settled() const;
  /// Drops the records that the peer has received. Returns false if the peer cannot have received
  /// this many records.
  bool acknowledge(std::uint64_t received, std::deque<outgoing>& dropped);
  /// Puts the records that the peer has not received into the queue, after the peer has reported
  /// which records these are.
  void resend();
  void give_back(std::uint64_t loan) noexcept;

  // For receiving.
  bool read_some(std::uint64_t& bytes);
  bool rest_arrives();
  void take_descriptors(msghdr& from);
  void parse();
  bool begin_body(std::uint64_t bytes);
  void on_record(proto::RecordKind kind, std::span<const char> head);
  bool on_greeting();
  void count();
  void on_message(std::span<const char> head);
  bool decode(std::span<const char> head);
  void deliver(payload body);
  void on_return(const proto::Return& x);
  payload borrow(const proto::Loan& x);
  void mistrust(const std::string& sent);
  void fail(const std::string& reason);
  bool end_overflow();
  void measure_waiting(clock::time_point time);

  caf::actor_system& sys_;
  file_descriptor socket_;
  stream_options options_;
  /// True if the peer runs on this host. Found out with the first socket, and not again with a
  /// later socket, so that both ends agree.
  bool same_host_;
  events events_;
  /// Null if no one counts.
  std::shared_ptr<payload_meter> meter_;

  mutable std::mutex mutex_;
  std::deque<outgoing> queue_;
  /// True if the records in the queue wait for the destructor of a sent_together object, and not
  /// until the socket has room.
  bool held_ = false;
  /// How many bytes of the first record in the queue are already written.
  std::size_t written_ = 0;
  bool broken_ = false;
  channel_limits limits_;
  /// limits_.max_bytes, for the reading thread, which does not take the mutex.
  std::atomic<std::uint64_t> accepts_;
  std::uint64_t waiting_ = 0;
  /// True if a message was dropped because too many bytes wait. No later message is sent.
  bool overflowed_ = false;
  /// True after end_overflow().
  bool overflow_ended_ = false;
  bool ended_ = false;
  /// Records that were written but not acknowledged. Empty if the channel cannot resume.
  std::deque<outgoing> sent_;
  /// Number of the first record in sent_. If sent_ is empty: number of the next record to write.
  std::uint64_t first_sent_ = 0;
  /// The peer must acknowledge the records before this number before the channel works().
  std::uint64_t to_arrive_ = 0;
  /// Bytes written to the present socket.
  std::uint64_t written_to_socket_ = 0;
  bool cut_ = false;
  /// True after a reconnection until the peer has reported which records it has received.
  bool holding_ = false;
  clock::time_point said_ = now();
  /// How many bytes waited in the system for the peer at the last call of keep_alive().
  int waited_ = 0;
  /// The last argument of keep_alive(); the time since which this argument has not changed; and the
  /// largest value that the peer may still pass to its own keep_alive().
  std::chrono::nanoseconds suspicion_ = first_suspicion;
  clock::time_point suspicion_since_ = now();
  std::chrono::nanoseconds longest_suspicion_ = first_suspicion;
  // The reading thread writes these without the mutex, because a sender may hold the mutex while
  // the system copies a large payload.
  std::atomic<clock::time_point> heard_ = now();
  std::atomic<std::uint64_t> received_ = 0;
  std::atomic<std::uint64_t> acknowledged_ = 0;
  std::uint64_t next_loan_ = 1;
  std::map<std::uint64_t, payload> lent_;
  /// Files of shared memory that the peer has opened.
  std::vector<std::uint64_t> known_;

  /// A thread that holds it must not lock another mutex. It may be locked while mutex_ or any other
  /// mutex is held, because a thread may release a payload at any time.
  mutable std::mutex returns_mutex_;
  /// Loans of the peer that this side has released.
  std::vector<std::uint64_t> returns_;
  std::size_t borrowed_ = 0;

  // Used only by the reading thread.
  record_reader reader_;
  std::deque<file_descriptor> descriptors_;
  loan_table opened_;
  /// The message whose payload is being read.
  proto::Frame frame_;
  caf::message content_;
  payload body_;
  std::size_t body_read_ = 0;
  /// How long this thread has polled for the rest of body_.
  std::chrono::nanoseconds polled_{};
  proto::Greeting greeting_;
  bool over_ = false;
  std::string why_over_;
  bool mistrusted_ = false;
  std::atomic<std::uint64_t> cuts_ = 0;
};

} // namespace troupe
