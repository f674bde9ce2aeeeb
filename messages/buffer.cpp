#include "messages/buffer.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>

namespace troupe {

namespace {

constexpr std::align_val_t alignment{64};

// The capacity of a small buffer is a multiple of a page, in bytes. Requests of nearly equal size
// then get the same capacity, so a later request can reuse the buffer of an earlier one. Rounding
// up to a page wastes almost no memory.
constexpr std::size_t granule = 4096;

// The largest number of buffers in shared memory. Each takes a file descriptor, and the usual limit
// of a process is 1,024 descriptors.
constexpr std::size_t max_shared = 512;

// The length of a period, in calls of take(); a training step makes a few calls. The pool counts,
// for each size, the buffers that were in use at the same time in this period and in the period
// before (see size_class).
constexpr std::uint64_t recent_takes = 512;

// Rounds a size in bytes up to a capacity. From 64 KiB on, there are at most 16 capacities between
// two powers of 2. With more capacities, payloads whose sizes differ from step to step would leave
// one unused buffer of each size in the pool.
std::size_t rounded(std::size_t bytes) {
  const auto step = std::max(granule, std::bit_floor(bytes) / 16);
  return (bytes + step - 1) / step * step;
}

} // namespace

buffer::buffer(std::byte* data, std::size_t capacity, bool writable) noexcept
  : data_(data), capacity_(capacity), writable_(writable) {}

buffer::~buffer() = default;

payload::payload(const payload& other) noexcept
  : buffer_(other.buffer_), offset_(other.offset_), size_(other.size_), rounded_(other.rounded_) {
  if (buffer_)
    buffer_->ref();
}

payload::payload(payload&& other) noexcept
  : buffer_(std::exchange(other.buffer_, nullptr)), offset_(std::exchange(other.offset_, 0)),
    size_(std::exchange(other.size_, 0)), rounded_(std::exchange(other.rounded_, false)) {}

payload& payload::operator=(payload other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  std::swap(rounded_, other.rounded_);
  return *this;
}

payload::~payload() {
  if (buffer_)
    buffer_->deref();
}

payload payload::allocate(std::size_t bytes) {
  return bytes == 0 ? payload{} : adopt(buffer_pool::process().take(bytes), 0, bytes);
}

payload payload::adopt(buffer* storage, std::size_t offset, std::size_t bytes) noexcept {
  payload result;
  result.buffer_ = storage;
  result.offset_ = offset;
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

/// A buffer that the pool has made. If its memory is a shared_memory, other processes can open it.
class buffer_pool::pooled final : public buffer {
public:
  pooled(buffer_pool* pool, std::size_t capacity)
    : pooled(pool, static_cast<std::byte*>(::operator new(capacity, alignment)), capacity) {
    std::memset(data(), 0, capacity);
  }

  pooled(buffer_pool* pool, shared_memory memory, std::uint64_t number)
    : pooled(pool, memory.data(), memory.size()) {
    memory_ = std::move(memory);
    number_ = number;
  }

  ~pooled() override {
    if (!memory_)
      ::operator delete(data(), alignment);
  }

  shared_file shared() const noexcept override { return {number_, memory_.file()}; }

  void revive() noexcept { buffer::revive(); }

  /// When the buffer was last released, as a number: the pool numbers all releases. The unused
  /// buffer with the smallest number has been unused for longest.
  std::uint64_t released = 0;

protected:
  void retire() noexcept override { pool_->give_back(this); }

private:
  pooled(buffer_pool* pool, std::byte* data, std::size_t capacity)
    : buffer(data, capacity, true), pool_(pool) {}

  buffer_pool* pool_;
  shared_memory memory_;
  std::uint64_t number_ = 0;
};

buffer_pool::buffer_pool(std::size_t retain_bytes) noexcept : retain_bytes_(retain_bytes) {}

buffer_pool::~buffer_pool() = default;

buffer_pool& buffer_pool::process() {
  // The pool is never destroyed, because buffers may outlive every other object of the process.
  static auto* pool = new buffer_pool{std::size_t{1} << 30};
  return *pool;
}

buffer* buffer_pool::take(std::size_t bytes) {
  const auto capacity = rounded(bytes);
  {
    std::lock_guard guard{mutex_};
    if (auto& unused = sizes_[capacity].unused; !unused.empty()) {
      auto* result = unused.back().release();
      unused.pop_back();
      retained_ -= capacity;
      note_use(capacity);
      result->revive();
      return result;
    }
  }
  auto* result = bytes >= share_from_ ? take_shared(capacity) : nullptr;
  if (result == nullptr)
    result = new pooled{this, capacity};
  std::lock_guard guard{mutex_};
  note_use(capacity);
  return result;
}

void buffer_pool::note_use(std::size_t capacity) {
  auto& size = sizes_[capacity];
  size.most = std::max(size.most, ++size.in_use);
  if (++taken_ % recent_takes != 0)
    return;
  for (auto& [bytes, x] : sizes_)
    x.most_before = std::exchange(x.most, x.in_use);
  std::erase_if(sizes_, [](auto& x) {
    return x.second.unused.empty() && x.second.most == 0 && x.second.most_before == 0;
  });
}

buffer_pool::pooled* buffer_pool::take_shared(std::size_t capacity) {
  {
    std::lock_guard guard{mutex_};
    if (shared_.size() >= max_shared)
      return nullptr;
  }
  auto memory = shared_memory::create(capacity);
  if (!memory)
    return nullptr;
  std::lock_guard guard{mutex_};
  shared_.insert(next_number_);
  return new pooled{this, std::move(memory), next_number_++};
}

std::size_t buffer_pool::retained() const {
  std::lock_guard guard{mutex_};
  return retained_;
}

std::vector<std::uint64_t> buffer_pool::freed(std::span<const std::uint64_t> numbers) const {
  std::lock_guard guard{mutex_};
  std::vector<std::uint64_t> result;
  for (const auto x : numbers)
    if (!shared_.contains(x))
      result.push_back(x);
  return result;
}

void buffer_pool::give_back(pooled* x) noexcept {
  // A buffer to free. Its memory is freed after the mutex is unlocked, because freeing memory takes
  // long.
  std::unique_ptr<pooled> freed;
  {
    std::unique_ptr<pooled> owned{x};
    std::lock_guard guard{mutex_};
    auto& size = sizes_[x->capacity()];
    --size.in_use;
    x->released = ++released_;
    try {
      size.unused.push_back(std::move(owned));
      retained_ += x->capacity();
    } catch (const std::bad_alloc&) {
      // If memory runs out here, the buffer is freed instead of kept.
      shared_.erase(x->shared().number);
    }
    freed = take_excess();
  }
  while (freed) {
    freed.reset();
    std::lock_guard guard{mutex_};
    freed = take_excess();
  }
}

bool buffer_pool::size_class::has_too_many() const noexcept {
  return !unused.empty() && unused.size() + in_use > std::max(most, most_before);
}

std::unique_ptr<buffer_pool::pooled> buffer_pool::take_excess() noexcept {
  if (retained_ <= retain_bytes_)
    return nullptr;
  size_class* oldest = nullptr;
  for (auto& [bytes, x] : sizes_)
    if (x.has_too_many()
        && (!oldest || x.unused.front()->released < oldest->unused.front()->released))
      oldest = &x;
  if (!oldest)
    return nullptr;
  auto result = std::move(oldest->unused.front());
  oldest->unused.pop_front();
  retained_ -= result->capacity();
  shared_.erase(result->shared().number);
  return result;
}

} // namespace troupe
