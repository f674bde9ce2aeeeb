#pragma once

#include "actors/ask.hpp"
#include "actors/output/run_report.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "actors/worker/input_reader.hpp"
#include "actors/worker/trainer.hpp"
#include "messages/interfaces.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace troupe {

/// Starts a worker, and passes it the actors that it uses. These actors need the worker's handle,
/// so they are spawned after the worker.
struct worker_parts {
  input_actor input;
  trainer_actor trainer;
  synchronizer_actor synchronizer;
};

/// Tells a worker to leave the run, because the operator stops it. The worker finishes the gradient
/// that it computes, gives the rest of its lease back to the coordinator, and then leaves.
struct leave_run {
  std::string reason;
};

/// Tells the node that the worker has left the run, and that the coordinator has its final report.
struct worker_left {};

/// Tells the node that the worker's data is loaded. If loading failed, `problem` says why.
struct worker_ready {
  std::uint32_t worker = 0;
  std::string problem;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::worker_parts)
TROUPE_LOCAL_MESSAGE(troupe::leave_run)
TROUPE_LOCAL_MESSAGE(troupe::worker_left)
TROUPE_LOCAL_MESSAGE(troupe::worker_ready)

namespace troupe {

using worker_owner = caf::typed_actor<rpc<void, worker_left>, rpc<void, worker_ready>>;

using worker_shell =
  worker_actor::extend<rpc<void, worker_parts>, rpc<void, batch_read>, rpc<void, input_ready>,
                       rpc<void, batch_trained>, rpc<void, batch_waits>, rpc<void, leave_run>,
                       rpc<void, tick>>;

struct worker_options {
  std::uint64_t view = 0;
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;
  /// Number of batches to read in advance; at least 1.
  std::size_t prefetch = 1;
  /// The run ends after this number of gradients in a row that are not finite; at least 1.
  std::uint64_t max_bad = 3;
  /// True if the next step may begin before the last gradient is decided (applied, rejected or left
  /// out): protocol_traits::overlaps.
  bool overlaps = false;
  patience requests;
  coordinator_actor coordinator;
  worker_owner owner;
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
};

/// Gets leases (ranges of samples) from the coordinator, and trains their batches. For each batch,
/// it acquires weights, computes the gradient, and commits it. The worker is the same for all
/// protocols. Only the synchronizer, which exchanges weights and gradients for the worker, differs.
///
/// A step has these phases:
/// - `reading`: the worker waits for its batch;
/// - `acquiring`: it waits for weights, and passes each range to the trainer when it arrives;
/// - `computing`: the trainer has all weights;
/// - `committing`: the worker waits for the decision about the gradient.
///
/// Meanwhile, the next batches are read. Between steps, the worker may be `idle` (it has no lease)
/// or `returning` (its gradient was too late, and it gives back the rest of the lease). After
/// `left`, it does nothing.
///
/// With `overlaps`, the next step of a lease begins as soon as a gradient is committed, before it
/// is decided. Gradients are decided one at a time, in order.
class worker : public worker_shell::base {
public:
  using super = worker_shell::base;

  worker(caf::actor_config& cfg, worker_options options);

  const char* name() const override { return "troupe.worker"; }
  std::uint64_t view_number() const noexcept { return options_.view; }

protected:
  behavior_type make_behavior() override;
  /// Drops handles to actors that hold a handle to this one. Otherwise, these actors would keep
  /// each other alive, because CAF frees an actor only when no handle to it is left.
  void on_exit() override;

private:
  enum class phase { idle, reading, acquiring, computing, committing, returning, left };

  void on_parts(const worker_parts& x);
  void on_lease(const proto::Lease& x);
  void on_acquired(const acquired& x);
  void on_batch(const batch_read& x);
  void on_trained(const batch_trained& x);
  void on_waits(const batch_waits& x);
  void on_broken(const broken& x);
  void on_committed(const committed& x);
  void on_leave(const leave_run& x);
  void on_heartbeat();
  void enter(phase x);
  void count_applied(const committed& x, const batch_trained& done);
  void count_trained(const batch_trained& done);
  void count_quarantined(const batch_trained& done);
  std::string describe_batch() const;
  std::string describe_bad_step(const batch_trained& done) const;
  /// Begins the next step of the lease before the gradient of this step is decided. Returns false
  /// if this is not possible now.
  bool go_ahead();
  void on_undecided(const committed& x);
  bool more_in_lease() const;
  /// Position of the current batch in the first lease. Between steps: position of the next batch.
  std::uint64_t batch() const { return batch_ + (undecided_ ? 1 : 0); }

  void request_leases();
  void next_step();
  std::uint64_t read(const proto::Lease& lease, std::uint64_t batch);
  void take_batch();
  void read_ahead();
  /// The batch after the current batch, if it is already read.
  std::optional<next_batch> next_batch_read() const;
  void acquire_if_read();
  void report_front_lease(std::function<void()> then, bool drops_next = false);
  void give_back_lease(bool drops_next);
  void leave();
  void fail(const std::string& reason, bool not_finite = false,
            const std::optional<task_name>& lost = {});
  /// A header with this worker's view, index and incarnation.
  template <class Header>
  Header identified() const;
  proto::Progress progress();
  std::string self() const { return "worker/" + std::to_string(options_.index); }

  worker_options options_;
  worker_parts parts_;
  phase phase_ = phase::idle;
  bool leaving_ = false;
  std::string leave_reason_;

  /// The current lease and the next one.
  std::deque<proto::Lease> leases_;
  /// Number of leases requested and received so far, and the newest lease's id.
  std::uint64_t leases_requested_ = 0;
  std::uint64_t leases_received_ = 0;
  std::uint64_t last_lease_ = 0;
  /// Number of batches of the first lease whose gradients are decided, and number of their samples.
  std::uint64_t batch_ = 0;
  std::uint64_t lease_samples_ = 0;
  double lease_loss_ = 0;
  std::uint64_t lease_loss_samples_ = 0;

  // -- the current step --
  std::optional<batch_read> data_;
  /// True if the trainer has the batch and some of the weights.
  bool begun_ = false;
  /// True while the trainer waits, in the middle of a batch, for sums over the batches of all
  /// workers.
  bool waits_for_sums_ = false;
  batch_trained trained_;
  /// True if the worker has sent the commit of this step.
  bool sent_ = false;
  /// The previous step, if its gradient is not decided yet.
  std::optional<batch_trained> undecided_;

  // -- reads, by ticket --
  std::uint64_t tickets_ = 0;
  std::uint64_t wanted_ = 0;
  /// A batch that is read in advance: its position, its ticket, and its data once it is read.
  struct read_ahead_batch {
    std::uint64_t lease = 0;
    std::uint64_t batch = 0;
    std::uint64_t ticket = 0;
    std::optional<batch_read> data;
  };
  std::deque<read_ahead_batch> ahead_;

  std::uint64_t produced_ = 0;
  std::uint64_t requeued_ = 0;
  std::uint64_t applied_ = 0;
  std::uint64_t limited_ = 0;
  std::uint64_t quarantined_ = 0;
  /// Number of gradients in a row that were not finite, up to the newest gradient.
  std::uint64_t bad_in_a_row_ = 0;
  worker_clock clock_;
  std::uint64_t samples_ = 0;
  std::uint64_t staleness_sum_ = 0;
  staleness_counts staleness_{};
  std::optional<double> gradient_norm_;
};

} // namespace troupe
