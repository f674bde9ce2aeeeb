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
  /// The actor of this worker's rank in the ring that adds up the replicas. The ring's vectors have
  /// the sizes local_sgd_sizes(). Messages of the left neighbour for this actor go to the
  /// synchronizer first, which passes them on.
  ring_node_actor ring;
  std::shared_ptr<replica_store> replica;
  patience requests;
  /// Receives captures for checkpoints and evaluations; null if the job has none.
  coordinator_actor coordinator;
};

/// The sizes of the vectors that the ring adds up: all weight_fragments::pieces(), then the counts
/// of replica_account. The list contains these sizes twice. The first half is for scheduled
/// averages, the second half for averages on demand, so that the ring can distinguish them.
std::vector<std::size_t> local_sgd_sizes(const job_context& context, std::size_t workers);

/// The messages of the synchronizer's interface, and others: messages of the left neighbour in the
/// ring, results of the ring, and requests to read, report or restore the replica.
using local_sgd_actor =
  synchronizer_actor::extend<rpc<void, proto::Segment, payload>, rpc<void, reduction>,
                             rpc<void, broken>, rpc<reply<proto::Weights, payload>, proto::Pull>,
                             rpc<proto::Report, proto::ReportRequest>,
                             rpc<proto::Ack, proto::Restore, payload>>;

/// The synchronizer of LOCAL_SGD (Stich 2019, arXiv 1805.09767). It applies the worker's gradients
/// to the worker's own replica of the model. After each `local_sgd.every` steps it replaces the
/// replica by the mean over all workers, in which all workers count equally. Statistics of layers
/// are averaged as well. The optimizer's state is not averaged. Each worker clips its gradient by
/// its own norm. With `local_sgd.outer`, an outer optimizer makes a step with the mean
/// (outer_optimizer), even if there is only one worker. All replicas get the result of this step.
///
/// An average is a ring all-reduce of the weights. Each rank sends 2 (ranks - 1) / ranks times the
/// size of the weights. Between averages no worker waits for others.
///
/// With `local_sgd.fragments`, the worker continues to train during the average of a fragment. The
/// result is used when the next average begins, so it does not depend on when messages arrive. Let
/// w be the result of the average (or of the outer step), c this replica when the average began,
/// and x this replica now. The replica becomes w + (x - c), so it keeps the steps that it has made
/// since the average began. Each step therefore enters exactly one average of each parameter. (The
/// paper mixes alpha x + (1 - alpha) w instead, which drops a part of these steps.) Statistics of
/// layers become w.
///
/// With `local_sgd.behind: CONTRIBUTE`, the worker that first reaches a multiple of `every` steps
/// begins an average. Each other worker joins between two of its steps, once a piece from its left
/// neighbour has arrived. After the average, all workers continue at the step number of the fastest
/// worker, so a slow worker skips numbers. After an average, all workers have the same step and
/// weights, and it is known which batch each worker trained last. Therefore a checkpoint can be
/// captured then. If no worker has made a step since the last average, an average changes nothing.
///
/// Readers always get averaged weights. With an outer optimizer, they get the outer weights after
/// the last average, and an average on demand is needed only at the end of a run. Without an outer
/// optimizer, worker 0 starts an average on demand if the weights are read when the replicas may
/// differ, for example at the end of an epoch. All workers then wait for data, and each joins as
/// soon as a piece from its left neighbour arrives. With CONTRIBUTE, worker 0 starts an average
/// whenever the weights are read.
class local_sgd_synchronizer : public local_sgd_actor::base {
public:
  using super = local_sgd_actor::base;

  local_sgd_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                         local_sgd_options options, worker_actor worker);

  const char* name() const override { return "troupe.local_sgd_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Answers waiting requests with an error. Drops handles to actors that hold a handle to this
  /// one. Otherwise, these actors would keep each other alive.
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
    /// Number of samples that this worker trained between the beginning of the previous average and
    /// the beginning of this one.
    std::uint64_t own_samples = 0;
    /// Number of vectors whose sum has not arrived.
    std::size_t missing = 0;
    std::vector<float> counts;
    std::uint64_t samples = 0;
    /// If a fragment is averaged, for each of its pieces: the replica's weights when the average
    /// began.
    std::vector<payload> captured = {};
    /// For each piece: the sum over all workers, stored until the average is complete. Empty if
    /// each sum is used as soon as it arrives.
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

  range_updater::terms terms_of(std::uint64_t samples, double factor = 1) const;
  void stage_clipped(const commit& x, double norm);
  void leave_out();
  std::optional<turn> due() const;
  /// Starts an average of all weights, or queues it if another average is under way.
  void demand();
  void proceed();
  void begin_average(const turn& what);
  void contribute_piece(std::size_t piece);
  /// Adds this worker's part to a vector of the current average.
  void reduce(std::size_t vector, payload values);
  void take(std::size_t piece, const payload& sum, const payload& captured);
  void take_in();
  bool whole(const average& x) const { return x.what.pieces == fragments_.all(); }
  /// True while the worker's steps must wait for the current average.
  bool waits() const { return average_ && (next_ || whole(*average_)); }
  /// True if the counts of all workers are exchanged.
  bool counted() const { return !waits() && (contribute_ || !apart_); }
  void finish_step();
  void capture_due();
  void capture(checkpoint_schedule& schedule, bool to_evaluate);
  std::vector<captured> captured_state(bool with_state) const;
  bool restore(const proto::Restore& x, const payload& values);
  /// True if the last epoch may have ended.
  bool may_be_over() const;
  proto::Report report() const;
  void answer_pull(caf::typed_response_promise<proto::Weights, payload> answer);

  std::shared_ptr<const job_context> context_;
  local_sgd_options options_;
  worker_actor worker_;
  std::size_t workers_;
  /// True with local_sgd.behind: CONTRIBUTE.
  bool contribute_;
  weight_fragments fragments_;
  replica_store& replica_;
  /// Absent if the job has no local_sgd.outer. Without an outer optimizer, the replicas get the
  /// mean.
  std::optional<outer_optimizer> outer_;
  replica_account account_;
  /// Number of steps of the replica, including earlier runs.
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;
  /// The step at which an average began: the newest average whose result is in the replica.
  std::uint64_t averaged_ = 0;
  /// Samples of all workers up to the beginning of that average, including earlier runs.
  std::uint64_t passed_samples_ = 0;
  acquire attributes_;
  /// The last batch of this run whose gradient the replica contains.
  lease_mark trained_;
  /// The worker's loss scale after that batch.
  std::optional<loss_scale_state> loss_scale_;
  /// If the job clips by norm: the step's gradient by bucket, until the norm is known.
  std::map<std::size_t, payload> unclipped_;
  /// The answer to the worker's last commit. It is held back while steps wait for an average.
  std::optional<committed> ended_;
  /// True if the worker has weights and has not committed its gradient.
  bool computing_ = false;
  /// True if the replicas may differ, because steps were made since the last average of all
  /// weights.
  bool apart_ = false;
  std::optional<average> average_;
  /// The next average, if it is due. It begins between two steps, after the current average has
  /// ended.
  std::optional<turn> next_;
  /// The new weights of a piece, while take() computes them.
  std::vector<float> mean_;
  /// Number of averages begun.
  std::uint64_t averages_ = 0;
  /// The worker's request for weights, if it came while steps wait for an average.
  std::optional<acquire> waiting_;
  std::vector<caf::typed_response_promise<proto::Weights, payload>> pulls_;
  std::vector<caf::typed_response_promise<proto::Report>> reports_;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
};

} // namespace troupe
