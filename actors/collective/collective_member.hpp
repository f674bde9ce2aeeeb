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

/// Asks a member to add up a vector with those of all other ranks. All must have the same length
/// and kind, and the bytes begin at a multiple of an element's size. They are lent to other ranks,
/// also in other processes: from now on nobody writes to them until all have let go of them
/// (payload::unique()).
struct all_reduce {
  payload values;
  element_kind kind = element_kind::float32;
};

/// The sum over all ranks: the same bits at every rank. Others may still read it.
struct all_reduced {
  payload sum;
};

/// Why a collective cannot go on; also inside the error that answers an all_reduce (failure_of).
struct collective_failure {
  /// link_lost: a rank has died, or its connection broke. timed_out: nothing came for the deadline.
  /// malformed: another length, kind or setting, or a piece that does not fit. failed: a rank has
  /// ended while others go on.
  errc code = errc::none;
  /// The rank at fault, as far as it is known.
  std::size_t rank = 0;
  /// Which all-reduce, from 1, and the step of its schedule that did not come, from 1.
  std::uint64_t number = 0;
  std::uint32_t step = 0;
  /// How long nothing had come when the first rank gave up.
  std::chrono::milliseconds waited{0};
  /// For people: all of that, and who found it.
  std::string text;
};

/// The other members, by rank; null at the own one. Comes once. A member that does not exist any
/// more, and has not said CollectiveLeave, has died.
struct meet_members {
  std::vector<collective_peer> peers;
};

/// The failure inside an error of an all_reduce; nothing if the error is another one (a request of
/// wrong input, which harms nobody else).
std::optional<collective_failure> failure_of(const caf::error& x);

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::all_reduce)
TROUPE_LOCAL_MESSAGE(troupe::all_reduced)
TROUPE_LOCAL_MESSAGE(troupe::collective_failure)
TROUPE_LOCAL_MESSAGE(troupe::meet_members)

namespace troupe {

/// What a member of a collective is for its program. Requests are served one after the other, in
/// the order they came; every rank must make them in the same order. Each is answered, at the
/// latest about twice the deadline after its turn.
using collective_actor = caf::typed_actor<rpc<all_reduced, all_reduce>>;

using collective_member_actor =
  collective_peer::extend<rpc<all_reduced, all_reduce>, rpc<void, meet_members>, rpc<void, tick>>;

/// One rank of a collective: a group of actors that add up vectors, in one actor system or in
/// several. Policy: all_reduce_part.
///
/// The first failure ends the group: the member tells all others, and answers every request from
/// then on with the same error. When nothing has come for the deadline, a member asks all others
/// where they are: to blame is a rank that does not answer, or whose program has not begun.
class collective_member : public collective_member_actor::base {
public:
  using super = collective_member_actor::base;

  collective_member(caf::actor_config& cfg, member_options options);

  const char* name() const override { return "troupe.collective_member"; }

protected:
  behavior_type make_behavior() override;
  /// Says goodbye, answers what waits, and drops all handles.
  void on_exit() override;

private:
  using time_point = std::chrono::steady_clock::time_point;

  struct request_of_program {
    all_reduce what;
    caf::typed_response_promise<all_reduced> answer;
  };

  /// Where the others are, asked after the deadline.
  struct inquiry {
    time_point since;
    std::size_t open = 0;
    /// The lowest rank at fault, and why.
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
  void tell_failure();
  all_reduce_schedule schedule() const {
    return static_cast<all_reduce_schedule>(header_.schedule());
  }

  member_options options_;
  /// Empty before on_meet.
  std::vector<collective_peer> peers_;
  /// Ranks that have left, and after how many all-reduces.
  std::vector<std::optional<std::uint64_t>> left_;
  std::deque<request_of_program> requests_;
  /// All-reduces begun. The newest is under way while there is a part.
  std::uint64_t number_ = 0;
  std::optional<all_reduce_part> part_;
  /// Of the newest one: what each piece says about the whole.
  proto::CollectivePiece header_;
  early_pieces early_;
  time_point moved_;
  bool reminded_ = false;
  std::optional<inquiry> inquiry_;
  std::optional<collective_failure> failure_;
};

} // namespace troupe
