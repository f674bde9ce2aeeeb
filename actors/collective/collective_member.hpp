#pragma once

#include "actors/collective/all_reduce_part.hpp"
#include "actors/collective/early_pieces.hpp"
#include "actors/tick.hpp"
#include "messages/collective.hpp"
#include "messages/errors.hpp"

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The largest piece, in bytes, that the receiver may add up on the sender's thread (if both ranks
/// are in one process). Larger pieces are added up on another thread.
inline constexpr std::size_t small_piece = std::size_t{64} << 10;

/// Asks a member to add up a vector with those of all other ranks. All vectors must have the same
/// length and kind, and begin at a multiple of the element size. Other ranks read the bytes without
/// a copy, possibly from other processes. Nobody may write to the bytes until all ranks have
/// finished (payload::unique() is then true).
struct all_reduce {
  payload values;
  element_kind kind = element_kind::float32;
};

/// The sum over all ranks, with the same bits on every rank. Other ranks may still be reading this
/// memory.
struct all_reduced {
  payload sum;
};

/// The reason why a collective cannot continue. The error that answers an all_reduce contains it
/// (failure_of).
struct collective_failure {
  /// link_lost: a rank has died, or its connection broke. timed_out: nothing arrived within the
  /// deadline. malformed: ranks use different lengths, kinds or settings, or a piece does not fit.
  /// failed: a rank has ended while others continue.
  errc code = errc::none;
  /// The rank at fault, if known.
  std::size_t rank = 0;
  /// The number of the all-reduce, and the step of its schedule whose pieces are missing. Both
  /// count from 1. If the rank that found the failure is between two all-reduces: the number of the
  /// next all-reduce, and step 0.
  std::uint64_t number = 0;
  std::uint32_t step = 0;
  /// The rank that gave up first had received no message for this long.
  std::chrono::milliseconds waited{0};
  /// The fields above as a text for people. The text also names the rank that found the failure.
  std::string text;
};

/// Tells a member all other members, by rank. The element at the member's own rank is null. Sent
/// once.
struct meet_members {
  std::vector<collective_peer> peers;
};

/// The failure that the error of an all_reduce contains. Nothing if only the request was invalid.
/// An invalid request does not affect other ranks.
std::optional<collective_failure> failure_of(const caf::error& x);

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::all_reduce)
TROUPE_LOCAL_MESSAGE(troupe::all_reduced)
TROUPE_LOCAL_MESSAGE(troupe::collective_failure)
TROUPE_LOCAL_MESSAGE(troupe::meet_members)

namespace troupe {

/// The messages that a program sends to a member. A member runs one all-reduce after the other, in
/// the order of its requests. Every rank must make the requests in the same order. The answer comes
/// at the latest about two deadlines after the all-reduce has begun.
using collective_actor = caf::typed_actor<rpc<all_reduced, all_reduce>>;

using collective_member_actor =
  collective_peer::extend<rpc<all_reduced, all_reduce>, rpc<void, meet_members>, rpc<void, tick>>;

/// The actor of one rank of a collective: a group of actors that add up vectors. They may be in
/// different actor systems. all_reduce_part decides which pieces are sent and added.
///
/// The first failure ends the group: the member that finds it tells all other members. From then
/// on, all members answer every request with this error.
///
/// If a member receives nothing within the deadline, it asks all other members how far they are. It
/// blames a rank that does not answer. If all answer, it blames a rank whose program has not begun
/// the current all-reduce, unless this rank itself waits in an earlier one. If there is no such
/// rank, it blames a rank whose pieces are missing.
class collective_member : public collective_member_actor::base {
public:
  using super = collective_member_actor::base;

  collective_member(caf::actor_config& cfg, member_options options);

  const char* name() const override { return "troupe.collective_member"; }

protected:
  behavior_type make_behavior() override;
  /// Tells other ranks that this rank leaves, answers all waiting requests with an error, and drops
  /// all handles.
  void on_exit() override;

private:
  using time_point = std::chrono::steady_clock::time_point;

  struct request_of_program {
    all_reduce what;
    caf::typed_response_promise<all_reduced> answer;
  };

  /// A question that is asked after the deadline: how far is each of the other ranks? Also contains
  /// their answers so far.
  struct inquiry {
    time_point since;
    std::size_t open = 0;
    /// The rank that is at fault: whether it answers, and why it is at fault. Ranks that do not
    /// answer come first, then lower ranks. `rank` is the number of ranks if none is known.
    bool answers = true;
    std::size_t rank = 0;
    std::string fault;
  };

  caf::result<all_reduced> on_all_reduce(const all_reduce& x);
  void on_meet(const meet_members& x);
  void on_piece(const proto::CollectivePiece& x, const payload& data);
  void on_failure(const proto::CollectiveFailure& x);
  void on_leave(const proto::CollectiveLeave& x);
  void on_down(const caf::down_msg& x);
  void on_tick();

  void begin_next();
  void take(const proto::CollectivePiece& x, const payload& data);
  void send_all(std::vector<addressed_piece> pieces);
  void finish_if_complete();
  void remind();
  void inquire();
  void heard(std::size_t rank, bool answers, const std::string& fault);
  void blame(errc code, std::size_t rank, const std::string& what);
  void fail(collective_failure why, bool tell);
  void report_failure();
  all_reduce_schedule schedule() const {
    return static_cast<all_reduce_schedule>(header_.schedule());
  }

  member_options options_;
  /// The other members, by rank. Empty before meet_members has arrived.
  std::vector<collective_peer> peers_;
  /// For each rank that has left: the number of all-reduces that it finished.
  std::vector<std::optional<std::uint64_t>> left_;
  std::deque<request_of_program> requests_;
  /// Number of all-reduces that have begun. The newest of them is in progress while `part_` has a
  /// value.
  std::uint64_t number_ = 0;
  std::optional<all_reduce_part> part_;
  /// The fields that all pieces of the newest all-reduce share.
  proto::CollectivePiece header_;
  early_pieces early_;
  time_point moved_;
  bool reminded_ = false;
  std::optional<inquiry> inquiry_;
  std::optional<collective_failure> failure_;
};

} // namespace troupe
