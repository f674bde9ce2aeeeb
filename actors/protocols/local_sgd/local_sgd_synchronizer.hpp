#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/checkpoint/send_capture.hpp"
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
  /// This worker's rank of the ring that adds up the replicas; it has the sizes of
  /// local_sgd_sizes(). What its left neighbour sends comes through the synchronizer.
  ring_node_actor ring;
  patience requests;
  /// Receives what checkpoints and evaluations need; null where the job has none.
  coordinator_actor coordinator;
};

/// Elements of the vectors that an average adds up, and the same once more: the ring tells averages
/// that are due from averages on demand by their vectors.
std::vector<std::size_t> local_sgd_sizes(const job_context& context, std::size_t workers);

/// What the synchronizer is besides the seam: the ring's neighbour and listener, reader of the
/// replica, and reporter at the end.
using local_sgd_actor =
  synchronizer_actor::extend<rpc<void, proto::Segment, payload>, rpc<void, reduction>,
                             rpc<void, broken>, rpc<reply<proto::Weights, payload>, proto::Pull>,
                             rpc<proto::Report, proto::ReportRequest>,
                             rpc<proto::Ack, proto::Restore, payload>>;

/// The synchronizer of LOCAL_SGD (Stich 2019, arXiv 1805.09767): applies the worker's gradients to
/// a replica of its own, and after each `local_sgd.every` steps replaces the weights by their mean
/// over all workers, each counted once. Statistics of layers are averaged with the weights. The
/// optimizer's state is not: each worker keeps its own, and clips its own gradient. With
/// `local_sgd.outer` the mean gives the gradient of an outer step (outer_optimizer), by one worker,
/// too, and the weights of all replicas are the result.
///
/// An average is a ring all-reduce of the weights: 2 (ranks - 1) / ranks of their bytes are sent by
/// each rank. No worker waits for others in between.
///
/// Readers of the weights always get an average. With an outer optimizer they get the outer weights
/// after the last one, and only the end of a run needs an average on demand. Otherwise worker 0
/// begins one if it is asked for the weights after other steps, as at the end of an epoch: all
/// workers wait for data then, and each takes part as soon as a piece of its left neighbour
/// arrives.
class local_sgd_synchronizer : public local_sgd_actor::base {
public:
  using super = local_sgd_actor::base;

  local_sgd_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                         local_sgd_options options, worker_actor worker);

  const char* name() const override { return "troupe.local_sgd_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold one of this.
  void on_exit() override;

private:
  enum class kind { due, on_demand };

  /// An average under way.
  struct average {
    kind why;
    /// Vectors that are not added up yet.
    std::size_t missing = 0;
    std::vector<float> counts;
    std::uint64_t samples = 0;
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
  void begin_average(kind why);
  void end_average();
  void finish_step();
  void capture(checkpoint_schedule& schedule, bool to_evaluate);
  std::vector<captured> captured_state(bool with_state) const;
  bool restore(const proto::Restore& x, const payload& values);
  /// The last epoch may have ended. True if it has.
  bool may_be_over() const;
  proto::Report report() const;
  void fail_held();
  void answer_pull(caf::typed_response_promise<proto::Weights, payload> answer);

  std::shared_ptr<const job_context> context_;
  local_sgd_options options_;
  worker_actor worker_;
  std::size_t workers_;
  replica_store replica_;
  /// Nothing: the replicas take the mean.
  std::optional<outer_optimizer> outer_;
  replica_account account_;
  /// Updates made of the replica, in earlier runs too.
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;
  /// The step of the last average.
  std::uint64_t averaged_ = 0;
  /// Of all workers, up to the last average, in earlier runs too.
  std::uint64_t passed_samples_ = 0;
  acquire attributes_;
  /// Where the job clips by norm: the step's gradient, by bucket, until the norm is known.
  std::map<std::size_t, payload> unclipped_;
  /// The step that waits for its average, or for a capture.
  std::optional<committed> ended_;
  /// The replicas are not equal: steps were made since the last average.
  bool apart_ = false;
  std::optional<average> average_;
  /// Of a bucket that was added up.
  std::vector<float> mean_;
  /// Averages begun.
  std::uint64_t averages_ = 0;
  /// What came during an average on demand.
  std::optional<acquire> waiting_;
  std::vector<caf::typed_response_promise<proto::Weights, payload>> pulls_;
  std::vector<caf::typed_response_promise<proto::Report>> reports_;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
};

} // namespace troupe
