#pragma once

#include "actors/link/file_descriptor.hpp"
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
#include <unordered_map>
#include <vector>

struct msghdr;

namespace troupe {

/// Why a link ends for which too much waits.
std::string beyond_window(std::uint64_t window);

struct stream_options {
  /// The peer runs on this host, and the socket can pass descriptors: payloads in shared memory are
  /// lent to it rather than sent.
  bool lends = false;
  /// The connection may break without the peer having ended (TCP): what it has not acknowledged is
  /// kept, and sent again over the next one.
  bool resumes = false;
  /// Largest payload, and most shared memory, that the peer may announce.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// See stream_channel::limit().
  std::uint64_t window = std::uint64_t{1} << 36;
  /// Asks for a call of on_tick() soon, from any thread.
  std::function<void()> wake;
};

/// Messages between two processes over a socket. A payload goes from the sender's buffer to the
/// receiver's without a copy in between (sendmsg, recvmsg); between processes of one host it does
/// not move at all: the receiver reads it in the sender's memory, which is not used for anything
/// else until the receiver has let go of it, or its process has ended.
///
/// A socket over which memory is lent stays open until both sides hold nothing of each other, even
/// if the link ended before: its end is the proof that the peer no longer reads.
///
/// A socket between hosts may break. The channel is then *cut*: messages wait, until resume() gives
/// it another socket, over which each message arrives that has not arrived before.
///
/// What waits for the peer is bounded: if it takes or acknowledges nothing, the channel ends.
class stream_channel : public std::enable_shared_from_this<stream_channel> {
public:
  /// Payloads of at least this many bytes are not copied into a record.
  static constexpr std::size_t large = std::size_t{16} << 10;

  struct events {
    /// A message of the peer.
    std::function<void(const proto::Frame&, caf::message)> received;
    /// Nothing can be sent or received any more. Called at most once.
    std::function<void(const std::string& reason)> closed;
  };

  /// @param socket connected, does not block
  stream_channel(caf::actor_system& sys, file_descriptor socket, stream_options options);
  ~stream_channel();
  stream_channel(const stream_channel&) = delete;
  stream_channel& operator=(const stream_channel&) = delete;

  /// Who hears what the peer sends. Called once, before a record other than the greeting is wanted,
  /// by the thread that reads (or before it does).
  void listen(events to);

  /// Thread-safe. Messages of one thread stay in order. What cannot be written at once waits here,
  /// by reference. Does nothing once the channel is closed. An error if the message cannot travel
  /// at all.
  caf::error send(proto::Frame frame, caf::message content);

  /// At most so many bytes may wait: not written, not acknowledged, or lent to the peer. The
  /// channel fails at the message that exceeds it, unless nothing else waits. Thread-safe.
  void limit(std::uint64_t window);

  /// Bytes that wait. Thread-safe.
  std::uint64_t waiting() const;

  /// The first record of the side that connected.
  /// @param port where this process listens, for a peer that wants to know whether it still runs
  void greet(const std::string& token, std::uint16_t port);

  /// This side's link is over. Thread-safe.
  void end();

  // -- for the thread that watches the socket --

  /// Reads what is there. True if there may be more, and others should have their turn first.
  bool on_readable();

  /// Writes what waits.
  void on_writable();

  /// Tells the peer what has come, and what is no longer needed of it.
  void on_tick();

  /// The socket broke, and resume() or give_up() must follow. Never if options.resumes is false.
  bool cut() const;

  /// How often it broke.
  std::uint64_t cuts() const noexcept { return cuts_; }

  /// Gives up the socket, which nobody watches any more.
  file_descriptor release_socket();

  /// Goes on over a new socket.
  /// @param greeting what the peer said there first; null on the side that has connected, whose
  /// greeting comes first
  void resume(file_descriptor socket, const proto::Greeting* greeting, const std::string& token);

  /// Since the socket broke, both sides have agreed on where to continue.
  bool resumed() const;

  /// The owner cannot get another socket.
  void give_up(const std::string& reason);

  /// Nothing waits to be written that could be. `settled`: also, the peer has acknowledged every
  /// message and let go of all memory that was lent to it.
  bool idle(bool settled) const;

  /// Memory that the peer may still read is never used again in this process: the peer may be
  /// stopped, and go on to read it.
  void keep_loans();

  /// Neither side needs the socket any more.
  bool finished() const;

  /// The peer's greeting, once it has come; records after it wait for listen(). Empty before.
  const proto::Greeting& greeting() const noexcept { return greeting_; }

  /// Says that this side lives, if it has said nothing for a quarter of `suspect_after`. If nothing
  /// has come for longer than that, breaks a connection that can be resumed, and returns false for
  /// another. Thread-safe.
  bool keep_alive(std::chrono::nanoseconds suspect_after);

  /// Nothing comes any more.
  bool over() const noexcept { return over_; }

  /// -1 while it has none.
  int socket() const;

private:
  class borrowed;

  struct outgoing {
    std::vector<char> head;
    payload body;
    int descriptor = -1;
    /// Keeps the descriptor open until it is written.
    payload lent = {};
    /// Counts for Greeting::received.
    bool numbered = true;
    /// Number of the loan.
    std::uint64_t loan = 0;

    std::uint64_t bytes() const { return head.size() + body.size(); }
  };

  using clock = std::chrono::steady_clock;

  // Sending; with mutex_ held.
  void lend(proto::Frame& frame, const payload& x, outgoing& out);
  void push(outgoing x);
  void push_news();
  void flush();
  bool overflows(const payload& body, std::size_t head);
  /// False if the peer cannot have received this many messages.
  bool acknowledge(std::uint64_t received, std::deque<outgoing>& dropped);
  void resend();
  void give_back(std::uint64_t loan) noexcept;

  // Receiving.
  bool read_some();
  void take_descriptors(msghdr& from);
  void parse();
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

  caf::actor_system& sys_;
  file_descriptor socket_;
  stream_options options_;
  events events_;

  mutable std::mutex mutex_;
  std::deque<outgoing> queue_;
  /// Of the first in the queue, bytes written.
  std::size_t written_ = 0;
  bool broken_ = false;
  std::uint64_t window_;
  std::uint64_t waiting_ = 0;
  /// A message was left out because too much waits: nothing follows it.
  bool overflowed_ = false;
  bool ended_ = false;
  /// Written, and not acknowledged; empty where the channel cannot resume.
  std::deque<outgoing> sent_;
  /// Of the first in sent_, or of the next to be written.
  std::uint64_t first_sent_ = 0;
  bool cut_ = false;
  /// The peer has yet to say what it has received.
  bool holding_ = false;
  clock::time_point said_ = clock::now();
  clock::time_point heard_ = clock::now();
  std::uint64_t received_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t next_loan_ = 1;
  std::map<std::uint64_t, payload> lent_;
  /// Shared memory that the peer has opened.
  std::vector<std::uint64_t> known_;

  /// Taken after mutex_, or alone: a payload may end wherever a mutex is held.
  mutable std::mutex returns_mutex_;
  /// Loans of the peer that are no longer held here.
  std::vector<std::uint64_t> returns_;
  std::size_t borrowed_ = 0;

  // Of the thread that reads.
  std::vector<char> staged_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::deque<file_descriptor> descriptors_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const shared_memory>> opened_;
  std::uint64_t opened_bytes_ = 0;
  /// A message whose payload is being read.
  proto::Frame frame_;
  caf::message content_;
  payload body_;
  std::size_t body_read_ = 0;
  proto::Greeting greeting_;
  bool over_ = false;
  std::string why_over_;
  bool mistrusted_ = false;
  std::atomic<std::uint64_t> cuts_ = 0;
};

} // namespace troupe
