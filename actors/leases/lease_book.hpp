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

/// The last batch of a worker whose gradient was applied: the number of the lease and the index of
/// the batch in it. Lease 0 means that there is no such batch.
struct lease_mark {
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
};

/// The progress of training at one moment. All epochs before `epoch` are trained. `epoch` is also
/// trained, except for the ranges `remaining` of its permutation (the shuffled order of samples).
/// They are in ascending order.
struct lease_cut {
  std::uint32_t epoch = 0;
  std::vector<range> remaining;

  /// Number of samples of the epoch that are not trained yet.
  std::uint64_t samples() const noexcept;
  bool operator==(const lease_cut&) const = default;
};

/// Decides which worker trains which samples of an epoch. It leases ranges of the epoch's
/// permutation to workers: a *lease* is a range of several batches that one worker has to train.
/// Each sample is committed (counted as trained) once. Samples that a worker leaves untrained are
/// leased again.
///
/// Asynchronous protocols lease disjoint ranges, in proportion to the samples that each worker has
/// trained so far. The ranges shrink toward the end of the epoch (guided self-scheduling,
/// Polychronopoulos and Kuck 1987), so that workers of different speed finish together. Synchronous
/// protocols lease the same ranges to all workers, which take turns within a range: batch k of rank
/// r begins at (k * ranks + r) * batch.
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

  /// Opens an epoch of which only the ranges in `from`, a result of cut(), remain to be trained. If
  /// there are none, the epoch is done at once.
  void resume_epoch(const lease_cut& from);

  /// The largest number of batches in a lease.
  static constexpr std::uint64_t most_batches = 32;

  /// The next lease for the worker with this rank. Nothing if the whole epoch is leased. The lease
  /// has at least 1 and at most `most` batches. In a synchronous protocol, all workers receive the
  /// same range, so the `most` of the first worker applies to all.
  std::optional<proto::Lease> next(std::size_t rank, std::uint64_t most = most_batches);

  /// Leases no new ranges until the next epoch. In a synchronous protocol, each worker still
  /// receives the ranges that another worker already has, because all workers make the same steps.
  void stop() noexcept { stopping_ = true; }

  /// True after stop(), when all leases are settled and no other lease will follow.
  bool stopped() const noexcept;

  /// Records that the holder trained the first `batches` batches of a lease, with `samples`
  /// samples. The rest is leased again, except for the next batch if `drops_next` is true. Returns
  /// false if no worker holds the lease, or if it has fewer batches or samples.
  bool settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples,
              bool drops_next = false);

  /// Leases that a worker holds, the oldest first.
  std::vector<proto::Lease> held_by(std::size_t rank) const;

  /// The progress of training at an earlier moment, for a checkpoint: the untrained samples of the
  /// epoch at that moment. `newest` is the lease of the newest gradient that was applied then; it
  /// identifies the epoch. `marks` has one mark per worker, in order of rank. A mark names the
  /// worker's last trained batch; all batches of the worker up to this batch count as trained. The
  /// book remembers the current epoch and the two epochs before it. For an older epoch, the result
  /// is empty.
  std::optional<lease_cut> cut(std::span<const lease_mark> marks, std::uint64_t newest) const;

  /// True if all samples of the epoch are committed or dropped, and no lease is held. A lease
  /// without samples also counts as held, because its holder must still report that its gradients
  /// are decided.
  bool epoch_done() const noexcept { return epoch_committed_ == epoch_size_ && held_.empty(); }

  /// Number of samples leased in all epochs, counted again with each new lease; number of samples
  /// committed; and number of samples that workers gave back untrained.
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

  /// A lease, and how much of it the holder has trained, if known.
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
  /// Ranges that are not leased yet, in order. Asynchronous protocols have one queue for all
  /// workers. Synchronous protocols have one queue per rank.
  std::vector<std::deque<range>> free_;
  std::map<std::uint64_t, holding> held_;
  /// Number of leases of this epoch by rank.
  std::vector<std::uint64_t> given_to_;
  /// For synchronous protocols: the largest number of batches in each lease of this epoch.
  std::vector<std::uint64_t> sizes_;
  bool stopping_ = false;
  /// Samples that each rank has trained. Samples of earlier epochs have less weight.
  std::vector<double> trained_by_;
  /// In the order of time: the newest epoch is the last.
  std::deque<epoch_record> epochs_;
  std::uint64_t epoch_size_ = 0;
  /// Samples that are committed or dropped.
  std::uint64_t epoch_committed_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace troupe
