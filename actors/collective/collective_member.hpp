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

/// Pieces of at most this number of bytes may be added up on the thread of their sender. Larger
/// pieces are added up on other threads.
inline constexpr std::size_t small_piece = std::size_t{64} << 10;

/// Asks a member to add up a vector with those of all other ranks. All vectors must have the same
/// length and kind, and begin at a multiple of the element size. The bytes are lent to other ranks,
/// possibly in other processes. Nobody may write to them until all ranks have released them
/// (payload::unique()).
struct all_reduce {
  payload values;
  element_kind kind = element_kind::float32;
};

/// The sum over all ranks, with the same bits on every rank. Other ranks may still be reading this
/// memory.
struct all_reduced {
  payload sum;
};

/// The reason why a collective cannot continue. It is also inside the error that answers an
/// all_reduce (failure_of).
struct collective_failure {
  /// link_lost: a rank has died, or its connection broke. timed_out: nothing arrived within the
  /// deadline. malformed: a different length, kind or setting, or a piece that does not fit.
  /// failed: a rank has ended while others continue.
  errc code = errc::none;
  /// The rank at fault, if known.
  std::size_t rank = 0;
  /// The number of the all-reduce, and the step of its schedule whose pieces are missing; both
  /// count from 1. If the rank that found the failure is between two all-reduces, this is the
  /// number of the next all-reduce, and step 0.
  std::uint64_t number = 0;
  std::uint32_t step = 0;
  /// Time between the last message and the moment when the first rank gave up.
  std::chrono::milliseconds waited{0};
  /// All of this as text for people, with the rank that found the failure.
  std::string text;
};

/// The other members by rank; null at this member's own rank. Sent once. If a member no longer
/// exists and has not sent CollectiveLeave, it has died.
struct meet_members {
  std::vector<collective_peer> peers;
};

/// The failure inside an error of an all_reduce. Nothing for any other error, which means that a
/// request had wrong input. Such a request affects no other rank.
std::optional<collective_failure> failure_of(const caf::error& x);

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::all_reduce)
TROUPE_LOCAL_MESSAGE(troupe::all_reduced)
TROUPE_LOCAL_MESSAGE(troupe::collective_failure)
TROUPE_LOCAL_MESSAGE(troupe::meet_members)

namespace troupe {

/// A member's interface for its program. Requests are served one after the other, in order of
/// arrival. Every rank must make them in the same order. Each request is answered, at the latest
/// about twice the deadline after its turn comes.
using collective_actor = caf::typed_actor<rpc<all_reduced, all_reduce>>;

using collective_member_actor =
  collective_peer::extend<rpc<all_reduced, all_reduce>, rpc<void, meet_members>, rpc<void, tick>>;

/// One rank of a collective, a group of actors that add up vectors, in one or in several actor
/// systems. The schedule is in all_reduce_part.
///
/// The first failure ends the group: the member tells all others, and from then on answers every
/// request with the same error. If nothing arrives within the deadline, a member asks all others
/// how far they are. The rank at fault is one that does not answer, or whose program has not begun
/// this all-reduce. If there is no such rank, it is one whose pieces are missing.
class collective_member : public collective_member_actor::base {
public:
  using super = collective_member_actor::base;

  collective_member(caf::actor_config& cfg, member_options options);

  const char* name() const override { return "troupe.collective_member"; }

protected:
  behavior_type make_behavior() override;
  /// Says goodbye, answers all waiting requests, and drops all handles.
  void on_exit() override;

private:
  using time_point = std::chrono::steady_clock::time_point;

  struct request_of_program {
    all_reduce what;
    caf::typed_response_promise<all_reduced> answer;
  };

  /// What this rank asks the other ranks after the deadline, and their answers so far.
  struct inquiry {
    time_point since;
    std::size_t open = 0;
    /// The lowest rank at fault, and the reason.
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
  void heard(std::size_t rank, const std::string& fault);
  void blame(errc code, std::size_t rank, const std::string& what);
  void fail(collective_failure why, bool tell);
  void report_failure();
  all_reduce_schedule schedule() const {
    return static_cast<all_reduce_schedule>(header_.schedule());
  }

  member_options options_;
  /// Empty before on_meet.
  std::vector<collective_peer> peers_;
  /// For each rank that has left: the number of all-reduces that it finished.
  std::vector<std::optional<std::uint64_t>> left_;
  std::deque<request_of_program> requests_;
  /// Number of all-reduces begun. The newest is in progress while `part_` has a value.
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
