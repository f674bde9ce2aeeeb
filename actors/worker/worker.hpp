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

/// Starts a worker and passes it its helper actors. The helpers need the worker's handle, so they
/// are spawned after the worker.
struct worker_parts {
  input_actor input;
  trainer_actor trainer;
  synchronizer_actor synchronizer;
};

/// The operator stops this worker. The worker finishes or gives back its current lease (the samples
/// that the coordinator assigned to it), and then leaves.
struct leave_run {
  std::string reason;
};

/// To the node: the worker has left the run and settled everything with the coordinator.
struct worker_left {};

/// To the node: the worker's data is loaded, or loading failed.
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
  /// Batches to read ahead of the current one; at least 1.
  std::size_t prefetch = 1;
  /// The run ends after this number of gradients in a row that are not finite; at least 1.
  std::uint64_t max_bad = 3;
  /// If true, the next step may begin before the gradient is decided, that is, accepted or rejected
  /// (protocol_traits::overlaps).
  bool overlaps = false;
  patience requests;
  coordinator_actor coordinator;
  worker_owner owner;
  std::shared_ptr<activity_board> board = std::make_shared<activity_board>();
};

/// Gets leases from the coordinator (each is a range of samples), and trains their batches. For
/// each batch, it acquires weights, computes the gradient, and commits it. The worker is the same
/// for all protocols. Only its synchronizer, which exchanges weights and gradients, differs.
///
/// A step goes through `reading` (waits for its batch), `acquiring` (waits for weights; each range
/// goes to the trainer as it arrives), `computing` and `committing`. Meanwhile, the next batches
/// are read. If a gradient came too late, the worker gives back the rest of the lease
/// (`returning`).
///
/// With `overlaps`, the next step of a lease begins as soon as a gradient is committed, before it
/// is accepted or rejected (decided). Gradients are decided one at a time, in order.
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
  /// Begins the next step of the lease before the gradient of this one is decided.
  bool go_ahead();
  void on_undecided(const committed& x);
  bool more_in_lease() const;
  /// Position of the current or next batch in the first lease.
  std::uint64_t batch() const { return batch_ + (undecided_ ? 1 : 0); }

  void request_leases();
  void next_step();
  std::uint64_t read(const proto::Lease& lease, std::uint64_t batch);
  void take_batch();
  void read_ahead();
  /// The batch after the current one, if it is read.
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
  /// Number of decided batches of the first lease, and number of their samples.
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
  /// True if the commit of this step is sent.
  bool sent_ = false;
  /// The step before this one, if its gradient is not decided yet.
  std::optional<batch_trained> undecided_;

  // -- reads, by ticket --
  std::uint64_t tickets_ = 0;
  std::uint64_t wanted_ = 0;
  /// A later batch: its position, its ticket, and its data once read.
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
  /// Number of gradients that are not finite since the last finite one.
  std::uint64_t bad_in_a_row_ = 0;
  worker_clock clock_;
  std::uint64_t samples_ = 0;
  std::uint64_t staleness_sum_ = 0;
  staleness_counts staleness_{};
  std::optional<double> gradient_norm_;
};

} // namespace troupe
