#include "messages/buffer.hpp"

#include <cassert>
#include <cstring>
#include <new>

namespace troupe {

namespace {

constexpr std::align_val_t alignment{64};

// Sizes of a training run recur, so capacities are rounded only to whole pages: large enough for
// reuse between nearly equal slices, small enough to waste nothing.
constexpr std::size_t granule = 4096;

std::size_t rounded(std::size_t bytes) {
  return (bytes + granule - 1) / granule * granule;
}

} // namespace

buffer::buffer(buffer_pool* pool, std::size_t capacity)
  : pool_(pool), capacity_(capacity),
    data_(static_cast<std::byte*>(::operator new(capacity, alignment))) {
  std::memset(data_, 0, capacity);
}

buffer::~buffer() {
  ::operator delete(data_, alignment);
}

void buffer::deref() noexcept {
  if (refs_.fetch_sub(1, std::memory_order_seq_cst) == 1)
    pool_->give_back(this);
}

payload::payload(const payload& other) noexcept
  : buffer_(other.buffer_), offset_(other.offset_), size_(other.size_) {
  if (buffer_)
    buffer_->ref();
}

payload::payload(payload&& other) noexcept
  : buffer_(std::exchange(other.buffer_, nullptr)), offset_(std::exchange(other.offset_, 0)),
    size_(std::exchange(other.size_, 0)) {}

payload& payload::operator=(payload other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  return *this;
}

payload::~payload() {
  if (buffer_)
    buffer_->deref();
}

payload payload::allocate(std::size_t bytes) {
  payload result;
  if (bytes == 0)
    return result;
  result.buffer_ = buffer_pool::process().take(bytes);
  result.size_ = bytes;
  return result;
}

payload payload::slice(std::size_t offset, std::size_t size) const noexcept {
  assert(offset + size <= size_);
  payload result;
  if (size == 0)
    return result;
  result = *this;
  result.offset_ += offset;
  result.size_ = size;
  return result;
}

buffer_pool::~buffer_pool() = default;

buffer_pool& buffer_pool::process() {
  // Never destroyed: buffers may outlive every other object of the process.
  static auto* pool = new buffer_pool{std::size_t{1} << 30};
  return *pool;
}

buffer* buffer_pool::take(std::size_t bytes) {
  const auto capacity = rounded(bytes);
  {
    std::lock_guard guard{mutex_};
    if (auto i = free_.find(capacity); i != free_.end() && !i->second.empty()) {
      auto* result = i->second.back().release();
      i->second.pop_back();
      retained_ -= capacity;
      result->refs_.store(1, std::memory_order_relaxed);
      return result;
    }
  }
  return new buffer{this, capacity};
}

std::size_t buffer_pool::retained() const {
  std::lock_guard guard{mutex_};
  return retained_;
}

void buffer_pool::give_back(buffer* buf) noexcept {
  std::unique_ptr<buffer> owned{buf};
  std::lock_guard guard{mutex_};
  if (retained_ + buf->capacity() > retain_bytes_)
    return;
  try {
    free_[buf->capacity()].push_back(std::move(owned));
    retained_ += buf->capacity();
  } catch (const std::bad_alloc&) {
    // Out of memory: the buffer is freed instead of kept.
  }
}

} // namespace troupe
