#pragma once

#include "actors/ring/ring_collective.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// End of a collective: the bucket's gradient, summed over all ranks. Equal bits on all ranks.
struct bucket_reduced {
  std::uint64_t step = 0;
  std::uint32_t bucket = 0;
  std::uint64_t samples = 0;
  payload sum;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::bucket_reduced)

namespace troupe {

/// Hears of finished collectives and of a broken ring.
using reduction_listener = caf::typed_actor<rpc<void, bucket_reduced>, rpc<void, broken>>;

/// Start of a collective: the worker's gradient of one bucket.
struct reduce_bucket {
  std::uint64_t step = 0;
  std::uint32_t bucket = 0;
  std::uint64_t samples = 0;
  /// float32, summed over the samples; lent until the collective ends.
  payload gradient;
  reduction_listener reply_to;
};

/// The next rank, and the name of the one before. Comes after the start, since neighbours may be
/// started in any order, and before the first collective.
struct ring_neighbour {
  task_name task;
  ring_actor right;
  task_name left;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::reduce_bucket)
TROUPE_LOCAL_MESSAGE(troupe::ring_neighbour)

namespace troupe {

using ring_node_actor = ring_actor::extend<rpc<void, reduce_bucket>, rpc<void, ring_neighbour>>;

/// One rank of a ring: runs the collectives of all buckets under way, each as far as its pieces
/// have come. Two messages frame a collective on this node; in between, pieces go to the right
/// neighbour only. Collectives under way are bounded by the buckets of two steps: a neighbour
/// cannot finish a step without us.
class ring_node : public ring_node_actor::base {
public:
  using super = ring_node_actor::base;

  /// `sizes`: elements of each bucket. `board`: the worker's, for the pieces that come and go.
  ring_node(caf::actor_config& cfg, std::uint64_t view, ring_place place,
            std::vector<std::size_t> sizes, std::shared_ptr<activity_board> board);

  const char* name() const override { return "troupe.ring_node"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold one of this: CAF frees an actor with its last reference.
  void on_exit() override;

private:
  using key = std::pair<std::uint64_t, std::uint32_t>;

  void on_reduce(const reduce_bucket& x);
  void on_segment(const proto::Segment& x, const payload& data);
  ring_collective& collective(const key& which);
  void send_pieces(const key& which);
  void finish_if_complete(const key& which);
  void tell_waiting();
  void fail(const std::string& reason);

  std::uint64_t view_;
  ring_place place_;
  std::vector<std::size_t> sizes_;
  std::shared_ptr<activity_board> board_;
  task_name right_task_;
  task_name left_task_;
  ring_actor right_;
  /// Who started the newest collective; null before the first.
  reduction_listener listener_;
  /// Why the ring cannot go on; empty while it can.
  std::string broken_;
  std::map<key, ring_collective> collectives_;
  /// Of those, the ones that this rank has contributed to: they wait for the left neighbour.
  std::size_t contributed_ = 0;
  /// Steps before this one are done; pieces of theirs are repetitions.
  std::vector<std::uint64_t> next_step_;
  std::vector<ring_piece> outbox_;
};

} // namespace troupe
