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

/// The messages for an actor that starts collectives: their results, or `broken` if the ring cannot
/// continue.
using reduction_listener = caf::typed_actor<rpc<void, reduction>, rpc<void, broken>>;

/// Starts a collective with this rank's contribution, such as the worker's gradient of one bucket
/// (a range of the parameters).
struct reduce_bucket {
  ring_contribution own;
  reduction_listener reply_to;
};

/// Starts a sum over the batches of all workers, for a layer that needs it (batch_norm.sync).
/// `number` counts these sums from 0 within a step.
struct sum_over_batches {
  std::uint64_t step = 0;
  std::uint32_t number = 0;
  /// Number of rows in this worker's batch.
  std::uint64_t samples = 0;
  /// float64
  payload values;
  reduction_listener reply_to;
};

/// Tells a ring_node its right neighbour (the next rank), and the name of its left neighbour (the
/// previous rank). Sent before the first collective. The ranks may start in any order.
struct ring_neighbour {
  task_name task;
  ring_actor right;
  task_name left;
};

/// Tells a ring_node its left neighbour (the previous rank). The ring_node sends nothing to this
/// actor, but monitors it, because the ring cannot continue without it.
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

/// The interface of a ring_node. Its report has the number of pieces that arrived more than once.
using ring_node_actor = ring_actor::extend<rpc<void, reduce_bucket>, rpc<void, sum_over_batches>,
                                           rpc<void, ring_neighbour>, rpc<void, left_neighbour>,
                                           rpc<proto::Report, proto::ReportRequest>>;

/// The actor of one rank of a ring. It runs the collectives of all current buckets at the same
/// time. Another actor starts a collective with a message and gets its result in a message. All
/// pieces of collectives go to the right neighbour. A piece that does not fit breaks the ring: the
/// left neighbour then runs a different collective, and neither of the two collectives would ever
/// end.
///
/// A ring_node monitors both neighbours. If a neighbour is lost, the actor that started the newest
/// collective gets an error with the neighbour's name. On the activity_board, this rank shows for
/// which step and bucket it waits, and since when.
class ring_node : public ring_node_actor::base {
public:
  using super = ring_node_actor::base;

  /// `sizes`: number of elements of each bucket. `sums`: number of elements of each sum over the
  /// workers' batches in a step. `board`: counts the pieces sent and received, and shows what this
  /// rank waits for.
  ring_node(caf::actor_config& cfg, std::uint64_t view, ring_place place,
            std::vector<std::size_t> sizes, std::shared_ptr<activity_board> board,
            const std::vector<std::size_t>& sums = {});

  const char* name() const override { return "troupe.ring_node"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold a handle to this one. Otherwise, these actors would keep
  /// each other alive, because CAF frees an actor only when no handle to it is left.
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
  /// The actor that started the newest collective. Null before the first collective.
  reduction_listener listener_;
  /// The collectives that this rank has started and that have not ended, each with the actor that
  /// started it.
  std::map<reduction_id, reduction_listener> waiting_;
  /// The newest step with a contribution of this rank.
  std::uint64_t step_ = 0;
  /// The reason why the ring cannot continue; its text is empty while the ring works.
  broken broken_;
};

} // namespace troupe
