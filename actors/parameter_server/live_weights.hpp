#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// A shard's range of the weights, for the protocol `hogwild`. All workers in the shard's process
/// read and write it without locks (relaxed_floats.hpp).
class live_weights {
public:
  live_weights(const job_context& context, range where);

  /// Before training: starts from these weights, which `samples` samples and `updates` updates have
  /// produced in earlier runs.
  void restore(std::span<const float> weights, std::uint64_t samples, std::uint64_t updates);

  range where() const noexcept { return where_; }

  /// Copies the current values. Updates that are made meanwhile may be copied in part. Any thread
  /// may call it.
  void read(std::span<float> out) noexcept;

  /// Copies the current values, like read(), into new memory.
  payload copy();

  /// Advances the learning rate's schedule by samples whose gradient was left out.
  void skip(std::uint64_t samples) noexcept {
    samples_.fetch_add(samples, std::memory_order_relaxed);
  }

  /// Number of updates so far.
  std::uint64_t updates() const noexcept { return updates_.load(std::memory_order_relaxed); }

private:
  friend class live_writer;

  range where_;
  std::vector<float> values_;
  std::atomic<std::uint64_t> samples_ = 0;
  std::atomic<std::uint64_t> updates_ = 0;
};

/// Applies one worker's gradients to live weights. Only one thread at a time may use it.
class live_writer {
public:
  live_writer(const job_context& context, std::shared_ptr<live_weights> weights);

  live_weights& weights() noexcept { return *weights_; }

  /// Makes one update with the job's optimizer, which must have no state.
  /// @param gradient the gradient of the range, summed over `samples` > 0 samples
  /// @param factor see range_updater::terms::factor
  /// @param newest receives the weights after the update; has the size of the range
  void update(std::span<const float> gradient, std::uint64_t samples, double factor,
              std::span<float> newest);

private:
  /// Number of elements that are updated at a time, so that they stay in the processor's cache.
  static constexpr std::size_t block = 4096;

  std::shared_ptr<live_weights> weights_;
  /// One for each block of the range.
  std::vector<range_updater> updaters_;
};

} // namespace troupe
