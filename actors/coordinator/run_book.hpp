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

/// The counts of an epoch so far.
struct epoch_totals {
  /// The number of the epoch, counted from 0.
  std::uint32_t epoch = 0;
  /// Seconds since training began.
  double seconds = 0;
  /// Number of trained samples of this epoch, including samples that were trained before this run
  /// began.
  std::uint64_t samples = 0;
  double samples_per_second = 0;
  /// Mean over the samples of this epoch. NaN if unknown.
  double train_loss = 0;
  /// Number of epochs trained, such as 1.5 in the middle of the second epoch.
  double epochs_trained = 0;
};

/// The accounts of a run: its workers, their leases (ranges of samples to train, lease_book.hpp),
/// and the results. This is a plain object, not an actor: its owner sends the leases to the
/// workers.
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
    /// Number of leases that this worker has requested, and number of leases that it has received.
    std::uint64_t asked = 0;
    std::uint64_t given = 0;
    bool present = true;
    /// Number of samples trained so far in the current lease. Only for progress reports.
    std::uint64_t live_samples = 0;
    double live_loss = 0;
    std::uint64_t live_loss_samples = 0;
    /// When this worker began its oldest lease; and its time per batch in the newest lease that it
    /// has finished, if there is one.
    time_point began = {};
    std::optional<double> batch_seconds = {};

    task_name name() const { return {job_kind::worker, account.worker}; }

    /// Takes a report of the worker. Messages may arrive late and out of order, so the counts never
    /// decrease.
    void hear(const proto::Progress& x);
  };

  /// @param workers the index and incarnation of each worker, in order of rank
  run_book(const options& how, const std::vector<std::pair<std::uint32_t, std::uint64_t>>& workers);

  // -- epochs --
  /// Starts training.
  /// @param deciders number of shards or ranks, which decide about gradients
  /// @param from where an earlier run stopped; if empty, training starts at the first epoch
  void begin(std::size_t deciders, const std::optional<lease_cut>& from, time_point now);
  void open_epoch(std::uint32_t epoch, time_point now);
  std::uint32_t epoch() const noexcept { return epoch_; }
  bool last_epoch() const noexcept { return epoch_ + 1 >= how_.epochs; }
  /// True if all samples of the epoch are trained and no lease of a lost worker is open.
  bool epoch_done() const { return settling_ == 0 && leases_.epoch_done(); }
  std::uint64_t epoch_leases() const noexcept { return epoch_leases_; }
  /// Number of samples trained in this run.
  std::uint64_t samples() const noexcept { return samples_; }
  /// The counts of the current epoch. If `live` is true, they include the progress of current
  /// leases.
  epoch_totals totals(time_point now, bool live) const;

  /// From now on, workers get no new leases: see lease_book::stop.
  void stop() noexcept { leases_.stop(); }
  /// True after stop() if every gradient is decided.
  bool stopped() const noexcept { return settling_ == 0 && leases_.stopped(); }

  // -- workers --
  /// The worker with this index and incarnation; null if it has left or is lost.
  worker* find(std::uint32_t index, std::uint64_t incarnation);
  /// The worker with this index, of any incarnation; null if it has left or is lost.
  worker* find(std::uint32_t index);
  std::span<const worker> workers() const noexcept { return workers_; }
  std::size_t present() const;
  bool anybody_present() const { return present() > 0; }
  /// Returns the next lease to send, with the rank of its worker. Returns nothing if no worker
  /// waits for a lease, or if all samples of the epoch are leased. Leases are short if steps are
  /// slow, because a run that is stopped must wait until its workers have finished their leases. A
  /// lease is a single batch until the time of a batch is known.
  std::optional<std::pair<std::size_t, proto::Lease>> next_lease(time_point now);
  /// True if a worker that has not left waits for a lease.
  bool anybody_waits() const;
  /// Workers that left or were lost.
  std::vector<std::uint32_t> gone() const;
  /// Workers that left or were lost, and workers that wait for a lease without holding one.
  std::vector<std::uint32_t> idle() const;
  /// Number of samples whose gradient came too late and that are not trained again.
  std::uint64_t dropped() const noexcept { return leases_.dropped(); }
  /// The workers that hold leases, without workers that left or were lost.
  std::vector<task_name> holders() const;

  // -- results of leases --
  enum class outcome { counted, repeated, wrong };
  /// Ends a lease that the worker has trained. Returns `repeated` if there is nothing to do, for
  /// example because the worker does not hold this lease any more. Returns `wrong` if the message
  /// is impossible. In both cases, nothing changes.
  outcome settle(worker& who, const proto::LeaseDone& x, time_point now);
  /// The worker leaves. It has already reported everything that it trained.
  void leave(worker& who);
  /// The worker is lost. Its leases stay open until settle_vanished() is called.
  void vanish(worker& who);
  /// Ends the leases of a lost worker. Call it after the fence (proto::Fence), when no gradient of
  /// the worker is accepted any more. Only then are the decisions of the shards or ranks final. A
  /// batch counts as trained if at least one shard or rank has applied its gradient. Parts of the
  /// gradient that did not reach the other shards or ranks are lost.
  void settle_vanished(std::size_t rank, const std::vector<proto::Decided>& decided);
  std::size_t settling() const noexcept { return settling_; }

  /// See lease_book::cut.
  std::optional<lease_cut> cut(std::span<const lease_mark> marks, std::uint64_t newest) const {
    return leases_.cut(marks, newest);
  }

  /// Checks that all counts agree: see ledger.hpp.
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
  /// Number of samples whose loss is in epoch_loss_. Samples of lost workers count as trained, but
  /// their loss is unknown.
  std::uint64_t epoch_loss_samples_ = 0;
  /// Number of samples of the first epoch that were trained before this run.
  std::uint64_t trained_before_ = 0;
  /// Number of samples that this run has to train.
  std::uint64_t expected_ = 0;
  /// For each shard or rank: number of samples whose gradient did not reach it, because the worker
  /// was lost while it sent the gradient.
  std::vector<std::uint64_t> lost_;
  std::size_t settling_ = 0;
};

} // namespace troupe
