#pragma once

#include "kernels/range.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// A worker's last batch whose gradient was applied: the number of its lease, and the index of the
/// batch in the lease. If no gradient of the worker was applied, the lease is 0.
struct lease_mark {
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
};

/// The progress of training at one moment. All epochs before `epoch` are trained. In `epoch`, the
/// ranges `remaining` are not trained yet. They are ranges of the epoch's permutation (the shuffled
/// order of samples), in ascending order.
struct lease_cut {
  std::uint32_t epoch = 0;
  std::vector<range> remaining;

  /// Number of samples of the epoch that are not trained yet.
  std::uint64_t samples() const noexcept;
  bool operator==(const lease_cut&) const = default;
};

/// Decides which worker trains which samples of an epoch. It leases ranges of the epoch's
/// permutation to workers: a *lease* is a range of several batches that one worker has to train.
/// Each sample is committed (counted as trained) once. Samples that a worker gives back untrained
/// are leased again.
///
/// Asynchronous protocols lease disjoint ranges, in proportion to the samples that each worker has
/// trained so far. The ranges shrink toward the end of the epoch (guided self-scheduling,
/// Polychronopoulos and Kuck 1987), so that workers of different speed finish together. Synchronous
/// protocols lease the same ranges to all workers, which take turns within a range. There, batch k
/// of rank r begins at (k * ranks + r) * batch.
class lease_book {
public:
  struct options {
    std::uint64_t records = 0;
    std::uint32_t batch = 1;
    std::size_t workers = 1;
    /// True for synchronous protocols: all workers make each step together.
    bool in_step = false;
    /// True if cut() will be called. The book then remembers the leases of the last epochs.
    bool remember = true;
  };

  explicit lease_book(const options& how);

  void open_epoch(std::uint32_t epoch);

  /// Opens an epoch that is partly trained: only the ranges in `from`, a result of cut(), remain to
  /// be trained. If there are no such ranges, the epoch is done at once.
  void resume_epoch(const lease_cut& from);

  /// The largest number of batches in a lease.
  static constexpr std::uint64_t most_batches = 32;

  /// Returns the next lease for the worker with this rank, or nothing if the whole epoch is leased.
  /// The lease has at least 1 and at most `most` batches. In a synchronous protocol, all workers
  /// receive the same range. Therefore, the value of `most` for the first worker applies to all
  /// workers.
  std::optional<proto::Lease> next(std::size_t rank, std::uint64_t most = most_batches);

  /// From now on until the next epoch, no new ranges are leased. In a synchronous protocol, all
  /// workers make the same steps. So each worker still receives the ranges that another worker
  /// already has.
  void stop() noexcept { stopping_ = true; }

  /// True after stop() if all leases have ended (see settle) and no other lease will follow.
  bool stopped() const noexcept;

  /// Ends a lease: its worker has trained the first `batches` batches, with `samples` samples. The
  /// rest is leased again. If `drops_next` is true, the next batch is dropped instead of leased
  /// again. Returns false if no worker holds the lease, or if the counts are impossible for the
  /// lease.
  bool settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples,
              bool drops_next = false);

  /// The leases that a worker holds, the oldest first.
  std::vector<proto::Lease> held_by(std::size_t rank) const;

  /// The progress of training at an earlier moment, for a checkpoint. It contains the samples of
  /// the epoch that were untrained then. `newest` is the lease of the newest gradient that was
  /// applied; it identifies the epoch. `marks` has one mark per worker, in order of rank. All
  /// batches of a worker up to its mark count as trained. The result is empty if the book no longer
  /// remembers the epoch: it remembers the current epoch and the two epochs before. If epochs are
  /// short, it remembers more: the earlier epochs with up to 4096 leases together.
  std::optional<lease_cut> cut(std::span<const lease_mark> marks, std::uint64_t newest) const;

  /// True if all samples of the epoch are committed or dropped, and no worker holds a lease. The
  /// epoch also waits for leases without samples, because their workers must still report that
  /// there is a decision about all their gradients.
  bool epoch_done() const noexcept { return epoch_committed_ == epoch_size_ && held_.empty(); }

  /// Numbers of samples in all epochs: leased (a sample counts again each time that it is leased),
  /// committed, and given back untrained.
  std::uint64_t leased() const noexcept { return leased_; }
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t released() const noexcept { return released_; }
  /// Number of samples in batches that no worker trains.
  std::uint64_t dropped() const noexcept { return dropped_; }

private:
  struct holding {
    std::size_t rank;
    proto::Lease lease;
  };

  /// A lease, and how many of its batches are trained. The number is empty until the lease ends
  /// (see settle).
  struct given {
    holding who;
    std::optional<std::uint64_t> settled;
  };

  /// An epoch: the ranges to train, and all leases by id.
  struct epoch_record {
    std::uint32_t epoch;
    std::vector<range> ranges;
    std::map<std::uint64_t, given> leases;
  };

  bool may_lease(std::size_t rank) const noexcept;
  std::uint64_t share_of(std::size_t rank) const;
  std::uint64_t most_samples(std::size_t rank, std::uint64_t most);
  std::optional<range> next_range(std::size_t rank, std::uint64_t most);
  std::vector<range> trained(const epoch_record& x, std::span<const lease_mark> marks) const;

  options how_;
  std::uint64_t next_id_ = 1;
  /// The ranges that are not leased yet, in order. Asynchronous protocols have one queue for all
  /// workers. Synchronous protocols have one queue per rank.
  std::vector<std::deque<range>> free_;
  std::map<std::uint64_t, holding> held_;
  /// Number of leases of this epoch that each rank has received.
  std::vector<std::uint64_t> given_to_;
  /// For synchronous protocols: the largest number of batches in each lease of this epoch.
  std::vector<std::uint64_t> sizes_;
  bool stopping_ = false;
  /// For each rank: the number of samples that it has trained. Samples of earlier epochs have less
  /// weight.
  std::vector<double> trained_by_;
  /// The epochs that the book remembers, the oldest first.
  std::deque<epoch_record> epochs_;
  std::uint64_t epoch_size_ = 0;
  /// Number of samples of this epoch that are committed or dropped.
  std::uint64_t epoch_committed_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace troupe
