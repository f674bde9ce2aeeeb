#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

class buffer_pool;

/// Reference-counted bytes, 64-byte aligned, from a pool. Used through `payload`.
class buffer {
public:
  buffer(buffer_pool* pool, std::size_t capacity);
  ~buffer();
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

  std::byte* data() noexcept { return data_; }
  std::size_t capacity() const noexcept { return capacity_; }

  void ref() noexcept { refs_.fetch_add(1, std::memory_order_seq_cst); }
  void deref() noexcept;
  std::size_t refs() const noexcept { return refs_.load(std::memory_order_seq_cst); }

private:
  friend class buffer_pool;

  std::atomic<std::size_t> refs_{1};
  buffer_pool* pool_;
  std::size_t capacity_;
  std::byte* data_;
};

/// A range of a buffer: the tensor bytes of a message. Copying it, or a slice of it, shares the
/// bytes: within a process nothing is ever copied.
///
/// The owner of a new payload may write to it until it is first sent. From then on it must not be
/// written while others hold it (see `unique()`). May be passed between threads like a
/// `shared_ptr`.
class payload {
public:
  payload() noexcept = default;
  payload(const payload& other) noexcept;
  payload(payload&& other) noexcept;
  payload& operator=(payload other) noexcept;
  ~payload();

  /// New bytes with unspecified contents, from the process's pool: no allocation in a steady state.
  static payload allocate(std::size_t bytes);

  /// New float32 values with unspecified contents.
  static payload floats(std::size_t count) { return allocate(count * sizeof(float)); }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  const std::byte* data() const noexcept { return buffer_ ? buffer_->data() + offset_ : nullptr; }
  std::byte* mutable_data() noexcept { return buffer_ ? buffer_->data() + offset_ : nullptr; }

  std::span<const std::byte> bytes() const noexcept { return {data(), size_}; }

  /// The bytes as float32; the size must be a multiple of 4.
  std::span<const float> as_floats() const noexcept {
    return {reinterpret_cast<const float*>(data()), size_ / sizeof(float)};
  }
  std::span<float> as_mutable_floats() noexcept {
    return {reinterpret_cast<float*>(mutable_data()), size_ / sizeof(float)};
  }

  /// The bytes [offset, offset + size), sharing this buffer. They must lie within this payload.
  payload slice(std::size_t offset, std::size_t size) const noexcept;

  /// The float32 values [begin, begin + count).
  payload slice_floats(std::size_t begin, std::size_t count) const noexcept {
    return slice(begin * sizeof(float), count * sizeof(float));
  }

  /// Nobody else holds these bytes.
  bool unique() const noexcept { return buffer_ && buffer_->refs() == 1; }

private:
  buffer* buffer_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

/// Keeps released buffers for reuse at the same size, so that a training step neither allocates nor
/// faults in fresh pages. Thread-safe.
class buffer_pool {
public:
  /// Keeps at most `retain_bytes` of unused memory.
  explicit buffer_pool(std::size_t retain_bytes) noexcept : retain_bytes_(retain_bytes) {}
  ~buffer_pool();
  buffer_pool(const buffer_pool&) = delete;
  buffer_pool& operator=(const buffer_pool&) = delete;

  /// The pool behind `payload::allocate`.
  static buffer_pool& process();

  /// A buffer with one reference and at least `bytes` of capacity; new memory is zeroed, and so
  /// faulted in, once.
  buffer* take(std::size_t bytes);

  /// Bytes of unused memory held.
  std::size_t retained() const;

private:
  friend class buffer;

  void give_back(buffer* buf) noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<std::unique_ptr<buffer>>> free_;
  std::size_t retained_ = 0;
  std::size_t retain_bytes_;
};

} // namespace troupe
