#include "actors/worker/pinned_pool.hpp"

#include "kernels/devices/device_error.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace troupe {

std::size_t pinned_batch_bytes(const job_context& context) {
  if (context.data.features == feature_kind::sparse)
    return 0;
  const auto bytes = context.batch() * context.data.feature_width() * sizeof(float);
  return bytes < direct_feed_bytes ? 0 : bytes;
}

std::size_t pinned_batches(const job_context& context) {
  return (2 + context.job.data().prefetch()) * context.job.accumulate();
}

class pinned_pool::pooled final : public buffer {
public:
  pooled(std::shared_ptr<pinned_memory> memory, std::size_t capacity)
    : buffer(static_cast<std::byte*>(memory->allocate(capacity)), capacity, true),
      memory_(std::move(memory)) {}
  ~pooled() override { memory_->release(data()); }

  /// Marks the buffer as used, with one reference. While it is used, it keeps its pool alive.
  void begin(std::shared_ptr<pinned_pool> pool) {
    pool_ = std::move(pool);
    revive();
  }

protected:
  void retire() noexcept override {
    // The local `pool` may be the last reference to the pool. If it is, the pool ends with this
    // function, and destroys this buffer.
    const auto pool = std::move(pool_);
    pool->give_back(this);
  }

private:
  std::shared_ptr<pinned_memory> memory_;
  /// Null while the buffer is unused.
  std::shared_ptr<pinned_pool> pool_;
};

pinned_pool::pinned_pool(std::shared_ptr<pinned_memory> memory, std::size_t capacity)
  : memory_(std::move(memory)), capacity_(capacity) {}

pinned_pool::~pinned_pool() = default;

payload pinned_pool::take(std::size_t bytes) {
  if (bytes > capacity_)
    throw std::invalid_argument("pinned_pool: " + std::to_string(bytes) + " bytes, at most "
                                + std::to_string(capacity_) + " expected");
  auto x = make();
  if (!x)
    return payload::allocate(bytes);
  x->begin(shared_from_this());
  return payload::adopt(x.release(), 0, bytes);
}

/// An unused buffer, or a new one. Null if there is no more pinned memory.
std::unique_ptr<pinned_pool::pooled> pinned_pool::make() {
  const std::lock_guard guard{mutex_};
  if (!unused_.empty()) {
    auto result = std::move(unused_.back());
    unused_.pop_back();
    return result;
  }
  if (exhausted_)
    return nullptr;
  try {
    // At most this many buffers can ever be unused, so give_back() allocates nothing.
    unused_.reserve(++made_);
    return std::make_unique<pooled>(memory_, capacity_);
  } catch (const device_error& error) {
    exhausted_ = true;
    spdlog::warn("batches are copied to the GPU more slowly than usual: {}", error.what());
    return nullptr;
  }
}

void pinned_pool::give_back(pooled* x) noexcept {
  const std::lock_guard guard{mutex_};
  unused_.emplace_back(x);
}

} // namespace troupe
