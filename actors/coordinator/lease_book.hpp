#pragma once

#include "kernels/range.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Who trains which samples of an epoch. Ranges of the epoch's permutation are leased to workers,
/// several batches at a time, and each sample is committed once; what a worker leaves behind is
/// leased again.
///
/// Asynchronous protocols lease disjoint ranges whose size falls toward the end of the epoch
/// (guided self-scheduling, Polychronopoulos and Kuck 1987), so that workers of different speed end
/// together. Synchronous protocols lease the same ranges to all workers, who take turns within it:
/// batch k of rank r begins at (k * ranks + r) * batch.
class lease_book {
public:
  struct options {
    std::uint64_t records = 0;
    std::uint32_t batch = 1;
    std::size_t workers = 1;
    /// Synchronous: workers go in step.
    bool in_step = false;
  };

  explicit lease_book(const options& how);

  void open_epoch(std::uint32_t epoch);

  /// The next lease for a worker, by rank; nothing while all of the epoch is leased.
  std::optional<proto::Lease> next(std::size_t rank);

  /// The holder trained the first `batches` batches of a lease, `samples` samples; the rest of it
  /// is leased again. False if the lease is not held, or has not so many batches or samples.
  bool settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples);

  /// Leases held by a worker, oldest first.
  std::vector<proto::Lease> held_by(std::size_t rank) const;

  /// All samples of the epoch are committed, and no lease is held: not even one of no samples,
  /// whose holder has yet to say that its gradients are decided.
  bool epoch_done() const noexcept { return epoch_committed_ == how_.records && held_.empty(); }

  /// Samples handed out (again, after a worker left), and committed, in all epochs.
  std::uint64_t leased() const noexcept { return leased_; }
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t released() const noexcept { return released_; }

private:
  struct holding {
    std::size_t rank;
    proto::Lease lease;
  };

  std::optional<range> next_range(std::size_t rank);

  options how_;
  std::uint32_t epoch_ = 0;
  std::uint64_t next_id_ = 1;
  /// Asynchronous: what nobody holds, in order. Synchronous: where each rank's next range begins.
  std::deque<range> free_;
  std::vector<std::uint64_t> next_begin_;
  std::map<std::uint64_t, holding> held_;
  std::uint64_t epoch_committed_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t released_ = 0;
};

} // namespace troupe
