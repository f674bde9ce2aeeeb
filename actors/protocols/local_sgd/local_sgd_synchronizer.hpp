#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/checkpoint/send_capture.hpp"
#include "actors/leases/lease_book.hpp"
#include "actors/protocols/local_sgd/fragments.hpp"
#include "actors/protocols/local_sgd/outer_optimizer.hpp"
#include "actors/protocols/site.hpp"
#include "actors/replica/replica_account.hpp"
#include "actors/replica/replica_store.hpp"
#include "actors/ring/ring_node.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

struct local_sgd_options {
  troupe::view view;
  std::uint32_t worker = 0;
  std::size_t rank = 0;
  /// This worker's rank of the ring that adds up the replicas, with the sizes of local_sgd_sizes().
  /// The left neighbour sends its messages to the synchronizer, which passes them to this actor.
  ring_node_actor ring;
  std::shared_ptr<replica_store> replica;
  patience requests;
  /// Receives captures for checkpoints and evaluations; null if the job has none.
  coordinator_actor coordinator;
};

/// Sizes of the vectors that an average of all weights adds up: weight_fragments::pieces(), then
/// the counts of replica_account. The list is repeated once, because vectors of scheduled averages
/// and of averages on demand have different numbers in the ring.
std::vector<std::size_t> local_sgd_sizes(const job_context& context, std::size_t workers);

/// In addition to the synchronizer's interface, this actor gets the messages of its left neighbour
/// in the ring and the ring's results, serves readers of the replica, and reports at the end.
using local_sgd_actor =
  synchronizer_actor::extend<rpc<void, proto::Segment, payload>, rpc<void, reduction>,
                             rpc<void, broken>, rpc<reply<proto::Weights, payload>, proto::Pull>,
                             rpc<proto::Report, proto::ReportRequest>,
                             rpc<proto::Ack, proto::Restore, payload>>;

/// The synchronizer of LOCAL_SGD (Stich 2019, arXiv 1805.09767). It applies the worker's gradients
/// to the worker's replica. After each `local_sgd.every` steps it replaces the weights by their
/// mean over all workers, with equal weights. Statistics of layers are averaged as well. The
/// optimizer's state is not averaged, because each worker keeps its own. Each worker also clips its
/// own gradient. With `local_sgd.outer` the mean gives the gradient of an outer step
/// (outer_optimizer), also with one worker, and all replicas get the result.
///
/// An average is a ring all-reduce of the weights. Each rank sends 2 (ranks - 1) / ranks times the
/// size of the weights. Between averages no worker waits for others.
///
/// With `local_sgd.fragments`, the worker continues to train during the average of a fragment. The
/// result is used when the next average begins, so it never depends on when messages arrive. Let w
/// be the outer weights or the mean, c this replica when the average began, and x this replica now.
/// The replica becomes w + (x - c), so it keeps the steps that it has made since the average began.
/// Each step therefore enters exactly one average of each parameter. (The paper mixes alpha x +
/// (1 - alpha) w instead, which drops a part of these steps.) Statistics of layers become w.
///
/// With `local_sgd.behind: CONTRIBUTE`, the worker that first comes to a step that is a multiple of
/// `every` begins an average. Each other worker takes part when a piece of its left neighbour
/// arrives, or after its current step. After the average, all workers continue at the step number
/// of the fastest worker, so a slow worker skips numbers. Because an average has one step, one set
/// of weights, and one position of each worker in its leases (the samples that it was given to
/// train), it can be captured for a checkpoint. If no worker has made a step since the last
/// average, an average changes nothing.
///
/// Readers always get averaged weights. With an outer optimizer they get the outer weights after
/// the last average, and only the end of a run needs an average on demand. Without an outer
/// optimizer, worker 0 starts an average on demand if somebody reads the weights when no average is
/// due, for example at the end of an epoch. All workers then wait for data, and each takes part as
/// soon as a piece of its left neighbour arrives. The end of each epoch with CONTRIBUTE works in
/// the same way.
class local_sgd_synchronizer : public local_sgd_actor::base {
public:
  using super = local_sgd_actor::base;

  local_sgd_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                         local_sgd_options options, worker_actor worker);

  const char* name() const override { return "troupe.local_sgd_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold a handle to this one.
  void on_exit() override;

private:
  /// All ranks begin a scheduled average after the same step. A rank joins an average on demand
  /// when the first piece of this average arrives.
  enum class kind { scheduled, on_demand };

  struct turn {
    kind why = kind::on_demand;
    /// Positions in weight_fragments::pieces().
    range pieces;
  };

  /// An average that has begun.
  struct average {
    turn what;
    /// The replica's step when the average began.
    std::uint64_t step = 0;
    /// This worker's samples from the previous average to the beginning of this one.
    std::uint64_t own_samples = 0;
    /// Number of vectors that are not added up yet.
    std::size_t missing = 0;
    std::vector<float> counts;
    std::uint64_t samples = 0;
    /// For each piece of a fragment: the replica's weights when the average began.
    std::vector<payload> captured = {};
    /// For each piece that must not be used before the average is complete: the sum.
    std::vector<payload> sums = {};
  };

  void on_acquire(const acquire& x);
  void on_contribute(const contribute& x);
  void on_commit(const commit& x);
  void on_abandon(const abandon& x);
  void on_segment(const proto::Segment& x, const payload& data);
  void on_reduced(const reduction& x);
  caf::result<proto::Weights, payload> on_pull(const proto::Pull& x);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values);

  void stage_clipped(const commit& x, double norm);
  void leave_out();
  std::optional<turn> due() const;
  /// True if all weights must be averaged, beginning now or after the current average.
  void demand();
  void proceed();
  void begin_average(const turn& what);
  void contribute_piece(std::size_t piece);
  /// Adds this worker's part to a vector of the current average.
  void reduce(std::size_t vector, payload values);
  void take(std::size_t piece, const payload& sum, const payload& captured);
  void take_in();
  bool whole(const average& x) const { return x.what.pieces == fragments_.all(); }
  /// True while steps wait for the current average.
  bool waits() const { return average_ && (next_ || whole(*average_)); }
  /// True if the counts of all workers are exchanged, or will be without another request.
  bool counted() const { return !waits() && (contribute_ || !apart_); }
  void finish_step();
  void capture_due();
  void capture(checkpoint_schedule& schedule, bool to_evaluate);
  std::vector<captured> captured_state(bool with_state) const;
  bool restore(const proto::Restore& x, const payload& values);
  /// True if the last epoch may have ended.
  bool may_be_over() const;
  proto::Report report() const;
  void fail_held();
  void answer_pull(caf::typed_response_promise<proto::Weights, payload> answer);

  std::shared_ptr<const job_context> context_;
  local_sgd_options options_;
  worker_actor worker_;
  std::size_t workers_;
  /// True with local_sgd.behind: CONTRIBUTE.
  bool contribute_;
  weight_fragments fragments_;
  replica_store& replica_;
  /// Absent without local_sgd.outer. The replicas then take the mean.
  std::optional<outer_optimizer> outer_;
  replica_account account_;
  /// The replica's step, including earlier runs.
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;
  /// The step at which the newest average began. Only averages whose result is in use count.
  std::uint64_t averaged_ = 0;
  /// Samples of all workers up to the last average, including earlier runs.
  std::uint64_t passed_samples_ = 0;
  acquire attributes_;
  /// The last batch whose gradient this run has applied.
  lease_mark trained_;
  /// The worker's loss scale after that batch.
  std::optional<loss_scale_state> loss_scale_;
  /// If the job clips by norm: the step's gradient by bucket, until the norm is known.
  std::map<std::size_t, payload> unclipped_;
  /// The step that waits for its average.
  std::optional<committed> ended_;
  /// True if the worker has weights and has not committed its gradient.
  bool computing_ = false;
  /// True if the replicas may differ, because steps were made since the last average of all
  /// weights.
  bool apart_ = false;
  std::optional<average> average_;
  /// The next average. It begins between two steps, when the result of the current average has been
  /// used.
  std::optional<turn> next_;
  /// The new weights of a piece.
  std::vector<float> mean_;
  /// Number of averages begun.
  std::uint64_t averages_ = 0;
  /// A request that came while steps wait for an average.
  std::optional<acquire> waiting_;
  std::vector<caf::typed_response_promise<proto::Weights, payload>> pulls_;
  std::vector<caf::typed_response_promise<proto::Report>> reports_;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
};

} // namespace troupe
