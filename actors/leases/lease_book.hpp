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

/// The last batch of a worker whose gradient was applied: the index of the batch in its lease.
/// Lease 0: none was.
struct lease_mark {
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
};

/// Where training stands: all before this epoch is trained, and of it all but these ranges of its
/// permutation, in ascending order.
struct lease_cut {
  std::uint32_t epoch = 0;
  std::vector<range> remaining;

  /// Samples of the epoch that are not trained.
  std::uint64_t samples() const noexcept;
  bool operator==(const lease_cut&) const = default;
};

/// Who trains which samples of an epoch. Ranges of the epoch's permutation are leased to workers,
/// several batches at a time, and each sample is committed once; what a worker leaves behind is
/// leased again.
///
/// Asynchronous protocols lease disjoint ranges whose size falls toward the end of the epoch
/// (guided self-scheduling, Polychronopoulos and Kuck 1987), in proportion to what each worker has
/// trained so far, so that workers of different speed end together. Synchronous protocols lease the
/// same ranges to all workers, who take turns within it: batch k of rank r begins at (k * ranks +
/// r) * batch.
class lease_book {
public:
  struct options {
    std::uint64_t records = 0;
    std::uint32_t batch = 1;
    std::size_t workers = 1;
    /// Synchronous: workers go in step.
    bool in_step = false;
    /// Whether cuts will be asked for: leases of the last epochs are then remembered.
    bool remember = true;
  };

  explicit lease_book(const options& how);

  void open_epoch(std::uint32_t epoch);

  /// Opens an epoch of which only some ranges are to be trained, as `cut()` gave them. Where there
  /// are none, the epoch is done at once.
  void resume_epoch(const lease_cut& from);

  /// The next lease for a worker, by rank; nothing while all of the epoch is leased.
  std::optional<proto::Lease> next(std::size_t rank);

  /// The holder trained the first `batches` batches of a lease, `samples` samples; the rest of it
  /// is leased again, except for its first batch if that is dropped. False if the lease is not
  /// held, or has not so many batches or samples.
  bool settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples,
              bool drops_next = false);

  /// Leases held by a worker, oldest first.
  std::vector<proto::Lease> held_by(std::size_t rank) const;

  /// What remains to be trained behind these marks, one per worker in order of rank: the epoch of
  /// the lease `newest` (of all gradients that were applied, the latest one's) without the batches
  /// that they cover. Nothing where that epoch is not remembered: it is the one that was opened
  /// last, or one of the two before.
  std::optional<lease_cut> cut(std::span<const lease_mark> marks, std::uint64_t newest) const;

  /// All samples of the epoch are committed or dropped, and no lease is held: not even one of no
  /// samples, whose holder has yet to say that its gradients are decided.
  bool epoch_done() const noexcept { return epoch_committed_ == epoch_size_ && held_.empty(); }

  /// Samples handed out (again, after a worker left), and committed, in all epochs.
  std::uint64_t leased() const noexcept { return leased_; }
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t released() const noexcept { return released_; }
  /// Samples of batches that nobody trains.
  std::uint64_t dropped() const noexcept { return dropped_; }

private:
  struct holding {
    std::size_t rank;
    proto::Lease lease;
  };

  /// A lease that was given, and how much of it its holder has trained, once that is known.
  struct given {
    holding who;
    std::optional<std::uint64_t> settled;
  };

  /// An epoch: what there was to train, and all leases given, by id.
  struct epoch_record {
    std::uint32_t epoch;
    std::vector<range> ranges;
    std::map<std::uint64_t, given> leases;
  };

  std::uint64_t share_of(std::size_t rank) const;
  std::optional<range> next_range(std::size_t rank);
  std::vector<range> trained(const epoch_record& x, std::span<const lease_mark> marks) const;

  options how_;
  std::uint64_t next_id_ = 1;
  /// What was not leased yet, in order: asynchronous, to anybody (one queue); synchronous, to each
  /// rank.
  std::vector<std::deque<range>> free_;
  std::map<std::uint64_t, holding> held_;
  /// Samples that each rank has trained; of earlier epochs, an ever smaller share.
  std::vector<double> trained_by_;
  /// The newest last.
  std::deque<epoch_record> epochs_;
  std::uint64_t epoch_size_ = 0;
  /// Committed or dropped.
  std::uint64_t epoch_committed_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace troupe
