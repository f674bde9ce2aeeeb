#pragma once

#include "actors/ring/ring_reductions.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

TROUPE_LOCAL_MESSAGE(troupe::reduction)

namespace troupe {

/// Receives finished collectives, and the notice of a broken ring.
using reduction_listener = caf::typed_actor<rpc<void, reduction>, rpc<void, broken>>;

/// Starts a collective with the worker's gradient of one bucket.
struct reduce_bucket {
  ring_contribution own;
  reduction_listener reply_to;
};

/// Starts a sum over the workers' batches. It is the n-th sum of this step.
struct sum_over_batches {
  std::uint64_t step = 0;
  std::uint32_t number = 0;
  /// Rows of this worker's batch.
  std::uint64_t samples = 0;
  /// float64
  payload values;
  reduction_listener reply_to;
};

/// The next rank, and the name of the previous one. Sent after all ranks have started (neighbours
/// may start in any order), and before the first collective.
struct ring_neighbour {
  task_name task;
  ring_actor right;
  task_name left;
};

/// The previous rank. This rank sends it nothing, but cannot continue without it.
struct left_neighbour {
  task_name task;
  caf::actor left;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::reduce_bucket)
TROUPE_LOCAL_MESSAGE(troupe::sum_over_batches)
TROUPE_LOCAL_MESSAGE(troupe::ring_neighbour)
TROUPE_LOCAL_MESSAGE(troupe::left_neighbour)

namespace troupe {

/// The Report counts repeated pieces.
using ring_node_actor = ring_actor::extend<rpc<void, reduce_bucket>, rpc<void, sum_over_batches>,
                                           rpc<void, ring_neighbour>, rpc<void, left_neighbour>,
                                           rpc<proto::Report, proto::ReportRequest>>;

/// One rank of a ring. It runs the collectives of all current buckets and advances each as far as
/// its pieces have arrived. Within this node, a collective takes two messages: its start and its
/// result. The pieces in between go only to the right neighbour. A piece that does not fit breaks
/// the ring: the left neighbour runs a different collective, so neither collective would ever end.
///
/// It monitors both neighbours. If one is lost, the starter of the newest collective gets the
/// error, with its name. The board shows in which step and bucket this rank waits, and since when.
class ring_node : public ring_node_actor::base {
public:
  using super = ring_node_actor::base;

  /// `sizes`: elements of each bucket. `board`: the worker's board, which counts pieces sent and
  /// received. `sums`: elements of each sum over the workers' batches of a step.
  ring_node(caf::actor_config& cfg, std::uint64_t view, ring_place place,
            std::vector<std::size_t> sizes, std::shared_ptr<activity_board> board,
            const std::vector<std::size_t>& sums = {});

  const char* name() const override { return "troupe.ring_node"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold a handle to this one. Otherwise they would keep each other
  /// alive, because CAF frees an actor with its last reference.
  void on_exit() override;

private:
  void on_reduce(const reduce_bucket& x);
  void on_sum(const sum_over_batches& x);
  void on_segment(const proto::Segment& x, const payload& data);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  void act(ring_reductions::effects result);
  void report_waiting();
  void watch(const caf::actor_addr& neighbour, const caf::actor_addr& other);
  void on_down(const caf::down_msg& x);
  void fail(const std::string& reason, const std::optional<task_name>& lost = {});

  std::uint64_t view_;
  std::size_t rank_;
  ring_reductions reductions_;
  std::shared_ptr<activity_board> board_;
  task_name right_task_;
  task_name left_task_;
  ring_actor right_;
  caf::actor left_;
  /// The actor that started the newest collective; null before the first.
  reduction_listener listener_;
  /// Starters of the collectives that have this rank's part and still wait for the left neighbour.
  std::map<reduction_id, reduction_listener> waiting_;
  /// The newest step with a contribution of this rank.
  std::uint64_t step_ = 0;
  /// The reason why the ring cannot continue; its text is empty if it can.
  broken broken_;
};

} // namespace troupe
