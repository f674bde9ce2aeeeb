#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/ring/ring_node.hpp"
#include "messages/interfaces.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe {

struct ring_synchronizer_options {
  troupe::view view;
  std::uint32_t worker = 0;
  /// This worker's rank of the ring.
  ring_node_actor ring;
  patience requests;
  /// Receives what checkpoints and evaluations need; null where the job has none.
  coordinator_actor coordinator;
};

/// What the synchronizer is besides the seam: listener of its ring node, reader of its replica, and
/// reporter at the end.
using ring_synchronizer_actor = synchronizer_actor::extend<
  rpc<void, bucket_reduced>, rpc<void, broken>, rpc<reply<proto::Weights, payload>, proto::Pull>,
  rpc<proto::Report, proto::ReportRequest>, rpc<proto::Ack, proto::Restore, payload>>;

/// The synchronizer of RING: hands each bucket of the gradient to the ring node as soon as backward
/// has finished it, and applies the optimizer to this rank's replica of the bucket when the sum
/// comes back, while earlier layers are still being computed. All replicas go through the same
/// bits. Where the job clips by norm, all buckets wait for the last one, by which the norm is
/// known.
///
/// For a checkpoint each rank sends its even share of the parameters to the coordinator, with the
/// optimizer's state, and goes on; while two are on their way, none is sent.
class ring_synchronizer : public ring_synchronizer_actor::base {
public:
  using super = ring_synchronizer_actor::base;

  ring_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                    ring_synchronizer_options options, worker_actor worker);

  const char* name() const override { return "troupe.ring_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Drops the handle to an actor that holds one of this.
  void on_exit() override;

private:
  /// A bucket's replica.
  struct replica {
    replica(const job_context& context, range where);

    range where;
    version_pool versions;
    range_updater updater;
    bool updated = false;
    /// Where the job clips by norm: the reduced gradient that waits for the norm, and its part.
    bool reduced = false;
    payload sum;
    double sum_of_squares = 0;
  };

  void on_acquire(const acquire& x);
  void on_contribute(const contribute& x);
  void on_commit(const commit& x);
  void on_abandon(const abandon& x);
  void on_reduced(const bucket_reduced& x);
  caf::result<proto::Weights, payload> on_pull(const proto::Pull& x);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values);
  bool update(replica& bucket, const payload& sum, std::uint64_t samples, double norm);
  void update_clipped();
  void finish_if_updated();
  void capture(checkpoint_schedule& schedule, bool to_evaluate);
  template <class Source>
  payload share_of(range share, Source source) const;

  std::shared_ptr<const job_context> context_;
  ring_synchronizer_options options_;
  worker_actor worker_;
  /// In the order in which backward makes them ready.
  std::vector<std::unique_ptr<replica>> buckets_;
  /// The step under way: the updates applied so far, in earlier runs, too.
  std::uint64_t step_ = 0;
  /// The first step of this run. Collectives of the ring count from there.
  std::uint64_t first_step_ = 0;
  /// The weights to begin with were handed over.
  bool restored_ = false;
  /// Which batch the step under way trains.
  acquire attributes_;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
  std::uint64_t samples_of_step_ = 0;
  std::optional<double> gradient_norm_;
  /// Trained in this run.
  std::uint64_t samples_ = 0;
  bool committed_ = false;
};

} // namespace troupe
