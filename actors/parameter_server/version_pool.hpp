#pragma once

#include "messages/buffer.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// Slots of a shard's pool, where so many workers pull: one for each of them, two for the
/// coordinator (a snapshot being evaluated, and one on its way), one for the newest version, one to
/// write, and those that are held for checkpoints.
constexpr std::size_t shard_slots(std::size_t workers, std::size_t captures = 0) noexcept {
  return workers + captures + 4;
}

/// Slots of the pool of a bucket in a ring: the newest version, the next, one that the trainer
/// still reads, one in a snapshot.
inline constexpr std::size_t replica_slots = 4;

/// Versions of a range of weights: one writer makes new ones out of place, any number of readers
/// take the newest without waiting and without locks. A version stays as it is while somebody holds
/// it; memory is bounded by the number of slots (readers that may hold a version + 2), beyond which
/// the writer has to wait.
///
/// Publishing is one atomic store. A reader takes a reference on the slot it believes to be the
/// newest and looks again: only if it still is, nobody can have begun to overwrite it (the
/// hazard-pointer argument, Michael 2004).
class version_pool {
public:
  struct snapshot {
    std::uint64_t version = 0;
    /// float32, the whole range.
    payload data;
  };

  /// Slots of `elements` float32 each, zeroed and faulted in. Version 0 is published: zeros, until
  /// `initial()` is written, which is allowed before any reader knows of the pool.
  version_pool(std::size_t elements, std::size_t slots);

  /// Bytes of a pool.
  static std::size_t memory_bytes(std::size_t elements, std::size_t slots) noexcept {
    return elements * slots * sizeof(float);
  }

  /// The newest version. Any thread.
  snapshot newest() const noexcept;

  std::size_t elements() const noexcept { return elements_; }

  // -- the writer's -----------------------------------------------------------------------------

  /// Weights of version 0, before the pool is shared.
  std::span<float> initial() noexcept { return slots_[0].data.as_mutable_floats(); }

  /// The newest version's weights.
  std::span<const float> published() const noexcept;
  std::uint64_t version() const noexcept;

  /// Finds a slot for the next version. False while readers hold all of them: try again later.
  bool begin() noexcept;

  /// The slot found by `begin()`.
  std::span<float> next() noexcept { return slots_[next_].data.as_mutable_floats(); }

  /// Makes the slot found by `begin()` the newest version.
  void publish(std::uint64_t version) noexcept;

private:
  struct slot {
    payload data;
    std::uint64_t version = 0;
  };

  std::size_t elements_;
  std::size_t count_;
  std::unique_ptr<slot[]> slots_;
  std::atomic<std::size_t> current_ = 0;
  /// Of the slot `current_`.
  std::atomic<std::uint64_t> version_ = 0;
  std::size_t next_ = 0;
};

} // namespace troupe
