#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/devices/pinned_memory.hpp"
#include "messages/buffer.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Bytes that a worker on a GPU needs in pinned memory for the features of a full batch. 0 if
/// batches are not read into pinned memory: if the features are sparse, or shorter than
/// direct_feed_bytes.
std::size_t pinned_batch_bytes(const job_context& context);

/// The number of batches that are in pinned memory at the same time: those of the gradient in
/// training, those of the next one, and those that are read ahead.
std::size_t pinned_batches(const job_context& context);

/// Payloads in pinned memory, for the features of a worker's batches: a GPU then copies a batch
/// without the help of a processor. Released buffers are used again. Thread-safe. Each payload
/// keeps the pool alive.
class pinned_pool : public std::enable_shared_from_this<pinned_pool> {
public:
  /// @param capacity bytes of each buffer
  pinned_pool(std::shared_ptr<pinned_memory> memory, std::size_t capacity);
  ~pinned_pool();
  pinned_pool(const pinned_pool&) = delete;
  pinned_pool& operator=(const pinned_pool&) = delete;

  /// New bytes with unspecified contents, at most `capacity`. If there is no more pinned memory,
  /// the bytes are in other memory (payload::allocate), and a warning is logged once.
  payload take(std::size_t bytes);

private:
  class pooled;

  std::unique_ptr<pooled> make();
  void give_back(pooled* x) noexcept;

  std::shared_ptr<pinned_memory> memory_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<pooled>> unused_;
  /// Number of buffers that were ever made.
  std::size_t made_ = 0;
  /// True if an allocation has failed. No further one is tried.
  bool exhausted_ = false;
};

} // namespace troupe
