#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/checkpoint/send_capture.hpp"
#include "actors/model/job_context.hpp"
#include "actors/parameter_server/gradient_journal.hpp"
#include "actors/replica/replica_home.hpp"
#include "actors/replica/replica_store.hpp"
#include "actors/ring/ring_node.hpp"
#include "actors/ring/ring_step.hpp"
#include "messages/interfaces.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// The place of a rank in the ring of a job.
/// @param on_gpus see replica_home::in_ring
ring_place place_of(const job_context& context, std::size_t rank, std::size_t ranks,
                    bool on_gpus = false);

/// Makes the replica of a rank. Throws device_error if the GPU has too little memory.
std::shared_ptr<replica_store> make_replica(std::shared_ptr<const job_context> context,
                                            const ring_place& place, replica_home home);

struct ring_synchronizer_options {
  troupe::view view;
  std::uint32_t worker = 0;
  /// The actor that runs this worker's rank of the ring.
  ring_node_actor ring;
  /// Made by make_replica().
  std::shared_ptr<replica_store> replica;
  patience requests;
  /// Receives captures (copies of this rank's state) for checkpoints and evaluations. Null if the
  /// job has neither.
  coordinator_actor coordinator;
};

/// The messages of the synchronizer's interface, and others: results of the ring node, and requests
/// to read, report or restore the replica.
using ring_synchronizer_actor = synchronizer_actor::extend<
  rpc<void, reduction>, rpc<void, broken>, rpc<reply<proto::Weights, payload>, proto::Pull>,
  rpc<proto::Report, proto::ReportRequest>, rpc<proto::Ack, proto::Restore, payload>>;

/// The synchronizer of the protocol RING. It passes each bucket of the gradient to the ring node as
/// soon as the backward pass has computed it. When the sum comes back, it stages the update of this
/// rank's replica, while the backward pass still computes earlier layers (ring_step). Once the
/// worker has committed and everything is staged, it publishes the update. All replicas have the
/// same bits.
///
/// With `ring.shard_optimizer`, the optimizer's state is divided among the ranks. Each rank updates
/// its own segment of each bucket and sends the new weights round the ring. The weights have the
/// same bits as without `ring.shard_optimizer`.
///
/// If all ranks are in this process, and their GPUs access each other's memory, the gradients stay
/// on the GPUs (replica_home::in_ring). The ring then only carries messages without elements.
///
/// Every `ring.verify_every_steps` steps the ranks compare hashes of their weights. If they differ,
/// the run ends, and the error names the workers that differ.
///
/// For a checkpoint, each rank sends an equal share of the parameters and of the optimizer's state
/// to the coordinator, and continues. At most two checkpoints are in transit at a time.
class ring_synchronizer : public ring_synchronizer_actor::base {
public:
  using super = ring_synchronizer_actor::base;

  ring_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                    ring_synchronizer_options options, worker_actor worker);

  const char* name() const override { return "troupe.ring_synchronizer"; }
  std::uint64_t view_number() const noexcept { return options_.view.number; }

protected:
  behavior_type make_behavior() override;
  /// Drops the handle to an actor that holds a handle to this one. Otherwise, the two actors would
  /// keep each other alive.
  void on_exit() override;

private:
  void on_acquire(const acquire& x);
  void on_contribute(const contribute& x);
  void on_commit(const commit& x);
  void on_abandon(const abandon& x);
  void on_reduced(const reduction& x);
  caf::result<proto::Weights, payload> on_pull(const proto::Pull& x);
  caf::result<proto::Report> on_report(const proto::ReportRequest& x);
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values);
  void proceed(std::vector<ring_contribution> start);
  void finish_if_decided();
  std::string text_of(const replica_difference& x) const;
  void record(const ring_outcome& x);
  void capture(checkpoint_schedule& schedule, bool to_evaluate);
  std::vector<captured> captured_state(bool with_state) const;

  std::shared_ptr<const job_context> context_;
  ring_synchronizer_options options_;
  worker_actor worker_;
  /// The view's workers in order of rank, and this worker's rank.
  std::vector<member> workers_;
  std::size_t rank_;
  ring_place place_;
  replica_store& replica_;
  ring_step round_;
  /// The decisions about all workers' gradients.
  gradient_journal journal_;
  /// The current step, which is the number of updates so far, including earlier runs.
  std::uint64_t step_ = 0;
  /// The first step of this run. The ring counts its collectives from this step.
  std::uint64_t first_step_ = 0;
  /// True from the time when the worker acquires a step until it gets the step's outcome.
  bool under_way_ = false;
  /// The worker's request for the current step, which names the lease and the batch.
  acquire attributes_;
  /// The worker's loss scale after its newest gradient.
  std::optional<proto::LossScaleState> loss_scale_;
  checkpoint_schedule checkpoints_;
  checkpoint_schedule evaluations_;
  /// Numbers of samples of all ranks in this run: samples that were trained, and samples that were
  /// left out.
  std::uint64_t samples_ = 0;
  std::uint64_t quarantined_samples_ = 0;
};

} // namespace troupe
