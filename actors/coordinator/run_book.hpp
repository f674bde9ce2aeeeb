#pragma once

#include "actors/coordinator/ledger.hpp"
#include "actors/leases/lease_book.hpp"
#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// The state of an epoch.
struct epoch_totals {
  /// Counts from 0.
  std::uint32_t epoch = 0;
  /// Seconds since training began.
  double seconds = 0;
  /// Samples of this epoch, including those trained before this run began.
  std::uint64_t samples = 0;
  double samples_per_second = 0;
  /// Mean over the samples of this epoch. NaN if unknown.
  double train_loss = 0;
  /// For example 1.5 in the middle of the second epoch.
  double epochs_trained = 0;
};

/// The accounts of a run: its workers, their leases (ranges of samples to train, lease_book.hpp),
/// and the results. This is a plain object, not an actor: the owner sends the leases.
class run_book {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct options {
    std::uint64_t records = 0;
    std::uint32_t batch = 1;
    std::uint32_t epochs = 1;
    bool in_step = false;
    /// True if the run writes checkpoints.
    bool remember = false;
  };

  struct worker {
    worker_account account;
    std::size_t rank = 0;
    /// Leases requested and given so far.
    std::uint64_t asked = 0;
    std::uint64_t given = 0;
    bool present = true;
    /// Samples trained so far in the current lease, for progress reports only.
    std::uint64_t live_samples = 0;
    double live_loss = 0;
    std::uint64_t live_loss_samples = 0;
    /// The time at which this worker began its oldest lease; and its time per batch in the newest
    /// lease that it has trained, if there is one.
    time_point began = {};
    std::optional<double> batch_seconds = {};

    task_name name() const { return {job_kind::worker, account.worker}; }

    /// Takes the worker's report. Messages may arrive late and out of order, so counts never
    /// decrease.
    void hear(const proto::Progress& x);
  };

  /// `workers` holds the index and incarnation of each worker, in order of rank.
  run_book(const options& how, const std::vector<std::pair<std::uint32_t, std::uint64_t>>& workers);

  // -- epochs --
  /// Starts training. `deciders` is the number of shards or ranks, which decide about gradients.
  /// `from` is the point at which an earlier run stopped. If it is empty, training starts at the
  /// first epoch.
  void begin(std::size_t deciders, const std::optional<lease_cut>& from, time_point now);
  void open_epoch(std::uint32_t epoch, time_point now);
  std::uint32_t epoch() const noexcept { return epoch_; }
  bool last_epoch() const noexcept { return epoch_ + 1 >= how_.epochs; }
  /// True if all samples of the epoch are trained and no lease of a lost worker is open.
  bool epoch_done() const { return settling_ == 0 && leases_.epoch_done(); }
  std::uint64_t epoch_leases() const noexcept { return epoch_leases_; }
  /// Samples trained in this run.
  std::uint64_t samples() const noexcept { return samples_; }
  /// If `live` is true, the totals include the progress of current leases.
  epoch_totals totals(time_point now, bool live) const;

  /// From now on, no new leases are given: see lease_book::stop.
  void stop() noexcept { leases_.stop(); }
  /// True after stop(), when every gradient is decided.
  bool stopped() const noexcept { return settling_ == 0 && leases_.stopped(); }

  // -- workers --
  /// The worker with this index and incarnation; null if it was given up.
  worker* find(std::uint32_t index, std::uint64_t incarnation);
  /// The worker with this index, of any incarnation; null if it was given up.
  worker* find(std::uint32_t index);
  std::span<const worker> workers() const noexcept { return workers_; }
  std::size_t present() const;
  bool anybody_present() const { return present() > 0; }
  /// The next lease to send, with the rank of its worker. Nothing if no worker waits for a lease,
  /// or if all samples of the epoch are leased. Leases are short if steps are slow, because a run
  /// that is stopped waits for the leases that workers hold. A lease is a single batch until the
  /// time of a batch is known.
  std::optional<std::pair<std::size_t, proto::Lease>> next_lease(time_point now);
  /// True if a worker that is present waits for a lease.
  bool anybody_waits() const;
  /// Workers that left or were lost.
  std::vector<std::uint32_t> gone() const;
  /// Workers that left or were lost, and workers that wait for a lease without holding one.
  std::vector<std::uint32_t> idle() const;
  /// Samples whose gradient came too late and that are not trained again.
  std::uint64_t dropped() const noexcept { return leases_.dropped(); }
  /// Present workers that hold leases.
  std::vector<task_name> holders() const;

  // -- results of leases --
  enum class outcome { counted, repeated, wrong };
  /// The worker has trained a lease. `wrong` means that the message is impossible. Then nothing
  /// changes.
  outcome settle(worker& who, const proto::LeaseDone& x, time_point now);
  /// The worker leaves. It has reported all that it trained.
  void leave(worker& who);
  /// The worker is lost. Its leases stay open until `settle_vanished`.
  void vanish(worker& who);
  /// Settles the leases of a lost worker. Call it after the fence (proto::Fence: no gradient of the
  /// worker is accepted any more), because the decisions of the shards or ranks are then final. A
  /// batch counts as trained if any of them has applied its gradient. Parts of the gradient that
  /// did not reach the others are lost.
  void settle_vanished(std::size_t rank, const std::vector<proto::Decided>& decided);
  std::size_t settling() const noexcept { return settling_; }

  /// See lease_book::cut.
  std::optional<lease_cut> cut(std::span<const lease_mark> marks, std::uint64_t newest) const {
    return leases_.cut(marks, newest);
  }

  /// Checks that all counts add up.
  ledger balance(const std::vector<proto::Report>& reports) const;

private:
  void count(std::uint64_t samples, double loss, std::uint64_t loss_samples);
  std::uint64_t most_batches(const worker& who) const;

  options how_;
  std::vector<worker> workers_;
  lease_book leases_;
  time_point began_;
  std::uint32_t epoch_ = 0;
  time_point epoch_began_;
  std::uint64_t samples_ = 0;
  std::uint64_t epoch_samples_ = 0;
  std::uint64_t epoch_leases_ = 0;
  double epoch_loss_ = 0;
  /// Number of samples in epoch_loss_. Samples of lost workers count as trained, but their loss is
  /// unknown.
  std::uint64_t epoch_loss_samples_ = 0;
  /// Samples of the first epoch that were trained before this run.
  std::uint64_t trained_before_ = 0;
  /// Samples that this run has to train.
  std::uint64_t expected_ = 0;
  /// For each shard or rank: number of samples whose gradient did not reach it, because their
  /// worker was lost while sending.
  std::vector<std::uint64_t> lost_;
  std::size_t settling_ = 0;
};

} // namespace troupe
