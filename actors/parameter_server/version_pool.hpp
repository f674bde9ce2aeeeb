#pragma once

#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

namespace troupe {

/// Number of slots in the pool of a shard from which this number of workers pull: one for each
/// worker, two for the coordinator (one snapshot in evaluation, one in transit), one for the newest
/// version, one to write, and `captures` for checkpoints.
constexpr std::size_t shard_slots(std::size_t workers, std::size_t captures = 0) noexcept {
  return workers + captures + 4;
}

/// Number of slots in the pool of a ring's bucket (a part of the weights that is reduced at once):
/// the newest version, the next version, one that the trainer still reads, and one in a snapshot.
/// With local SGD, other workers on the host may also read a version, in shared memory. Their
/// number is not known, so a pool that has no free slot gets more memory (begin_always).
inline constexpr std::size_t replica_slots = 4;

/// Stores the versions of a range of weights that are in use. One writer makes new versions in new
/// memory. Any number of readers take the newest version, without waiting and without locks. A
/// version does not change while a reader holds it. Each version needs one of the pool's `slots`
/// slots. Readers are expected to hold at most `slots - 2` versions at a time. If they hold more,
/// the writer must wait.
///
/// Publishing is a single atomic store. A reader takes a reference to the slot that seems to be the
/// newest, and then checks again. If the slot is still the newest, the writer cannot have begun to
/// overwrite it (the hazard-pointer argument, Michael 2004).
class version_pool {
public:
  struct snapshot {
    std::uint64_t version = 0;
    /// float32, the whole range.
    payload data;
  };

  /// Makes slots of `elements` float32 each. Version 0 has zeros. `initial()` can change it, but only
  /// before a reader uses the pool.
  /// @param lazily if false, zeros are written to all slots, so that the system provides the memory
  /// now. If true, a slot takes memory only when a version is written there
  version_pool(std::size_t elements, std::size_t slots, bool lazily = false);

  /// Size of a pool in bytes.
  static std::size_t memory_bytes(std::size_t elements, std::size_t slots) noexcept {
    return elements * slots * sizeof(float);
  }

  /// The newest version. Any thread may call it.
  snapshot newest() const noexcept;

  std::size_t elements() const noexcept { return elements_; }

  // -- for the writer ---------------------------------------------------------------------------

  /// Weights of version 0, before the pool is shared.
  std::span<float> initial() noexcept { return slots_[0].data.as_mutable_floats(); }

  /// The newest version's weights.
  std::span<const float> published() const noexcept;
  std::uint64_t version() const noexcept;

  /// Finds a slot for the next version. Returns false if readers hold all slots. Then try again
  /// later.
  bool begin() noexcept;

  /// Like begin(), but if readers hold all slots, one slot gets new memory. Its readers keep the
  /// old memory. Only for a pool whose newest() is called only on the writer's thread; the versions
  /// may be read on other threads.
  void begin_always();

  /// The slot found by `begin()`, for writing.
  std::span<float> next() noexcept {
    slots_[next_].number = 0;
    return slots_[next_].data.as_mutable_floats();
  }

  /// Shares elements [begin, begin + count) of the slot found by `begin()`. `begin()` does not find
  /// this slot again while the returned payload exists.
  payload part_of_next(std::size_t begin, std::size_t count) const noexcept {
    return slots_[next_].data.slice_floats(begin, count);
  }

  /// Makes the slot found by `begin()` the newest version.
  void publish(std::uint64_t version) noexcept;

  // If an update changes only a few elements, the time for the next version need not depend on the
  // number of elements: the slot found by `begin()` has an old version, and lacks only the changes
  // since then.

  /// Copies the newest version to the slot found by `begin()`. Call it before next(). The writer
  /// then changes some elements, and calls publish_changes().
  void copy_newest();

  /// Like publish(), for a version that differs from the one before only in `changed`.
  void publish_changes(std::uint64_t version, range_list changed);

private:
  struct slot {
    payload data;
    std::uint64_t version = 0;
    /// The publication whose weights the slot has, counted from 1. 0 if it has no whole version.
    std::uint64_t number = 0;
  };

  void publish_next(std::uint64_t version) noexcept;

  std::size_t elements_;
  std::size_t count_;
  std::unique_ptr<slot[]> slots_;
  std::atomic<std::size_t> current_ = 0;
  /// Version of the slot `current_`.
  std::atomic<std::uint64_t> version_ = 0;
  std::size_t next_ = 0;
  /// Number of publications so far, including version 0.
  std::uint64_t published_ = 1;
  /// The changes of the newest publications, up to number `published_`. Their number is limited.
  /// Together, they have at most as many elements as a version.
  std::deque<range_list> changes_;
  std::size_t changed_ = 0;
};

} // namespace troupe
