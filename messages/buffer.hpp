#pragma once

#include "messages/shared_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe {

/// A file that contains a buffer's memory. Other processes on this host can open it.
struct shared_file {
  /// Identifies the buffer: this process gives each number only once. 0 if other processes cannot
  /// open the memory.
  std::uint64_t number = 0;
  /// The descriptor that another process gives to shared_memory::open(). The buffer owns it and
  /// closes it.
  int descriptor = -1;
};

/// Reference-counted bytes, aligned to 64 bytes. Other code uses a buffer through `payload`.
class buffer {
public:
  virtual ~buffer();
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

  std::byte* data() noexcept { return data_; }
  std::size_t capacity() const noexcept { return capacity_; }

  void ref() noexcept { refs_.fetch_add(1, std::memory_order_seq_cst); }
  void deref() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_seq_cst) == 1)
      retire();
  }
  std::size_t refs() const noexcept { return refs_.load(std::memory_order_seq_cst); }

  /// True for memory of this process. It may be written while a single payload refers to it (see
  /// payload::unique()). False for memory of another process, which this process may only read.
  bool writable() const noexcept { return writable_; }

  /// The file that contains the buffer's memory. Its number is 0 if other processes cannot open the
  /// memory.
  virtual shared_file shared() const noexcept { return {}; }

protected:
  buffer(std::byte* data, std::size_t capacity, bool writable) noexcept;

  /// Called when the last reference is gone.
  virtual void retire() noexcept = 0;

  void revive() noexcept { refs_.store(1, std::memory_order_relaxed); }

private:
  std::atomic<std::size_t> refs_{1};
  std::byte* data_;
  std::size_t capacity_;
  bool writable_;
};

/// The tensor bytes of a message: a range of a buffer. Copies and slices of a payload refer to the
/// same buffer, so the bytes are never copied within a process.
///
/// The owner of a new payload may write to its bytes until the payload is first sent. After that,
/// the owner may write only while no other payload refers to the same buffer (see `unique()`). For
/// threads, the rules are those of `std::shared_ptr`.
class payload {
public:
  payload() noexcept = default;
  payload(const payload& other) noexcept;
  payload(payload&& other) noexcept;
  payload& operator=(payload other) noexcept;
  ~payload();

  /// New bytes with unspecified contents, from the pool of the process (buffer_pool). Once the pool
  /// has buffers of all sizes that a training step needs, a step allocates no memory.
  static payload allocate(std::size_t bytes);

  /// The bytes [offset, offset + bytes) of a buffer. The payload takes over the caller's reference
  /// to the buffer.
  static payload adopt(buffer* storage, std::size_t offset, std::size_t bytes) noexcept;

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

  /// The bytes [offset, offset + size) of this payload, in the same buffer. They must lie within
  /// this payload.
  payload slice(std::size_t offset, std::size_t size) const noexcept;

  /// Like slice(), but in units of float32 values: [begin, begin + count).
  payload slice_floats(std::size_t begin, std::size_t count) const noexcept {
    return slice(begin * sizeof(float), count * sizeof(float));
  }

  /// True if no other payload refers to the same buffer, and the buffer is writable. The owner of
  /// this payload may then write to the bytes.
  bool unique() const noexcept { return buffer_ && buffer_->refs() == 1 && buffer_->writable(); }

  /// States that these are float32 values most of which were rounded to bfloat16. Links between
  /// hosts then send them packed (packed_floats.hpp). Slices of this payload inherit the mark. It
  /// is not sent: the payload that a peer receives has no mark.
  void mark_rounded() noexcept { rounded_ = true; }
  bool is_rounded() const noexcept { return rounded_; }

  /// The buffer. Null if the payload is empty.
  const buffer* storage() const noexcept { return buffer_; }
  /// Position of the payload's first byte in the buffer.
  std::size_t offset() const noexcept { return offset_; }

private:
  buffer* buffer_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
  bool rounded_ = false;
};

/// Keeps released buffers, and reuses them for requests of the same size. So a training step does
/// not wait for new memory, or for the system to map its pages. Thread-safe.
///
/// If the unused buffers take more than `retain_bytes`, the pool frees some of them: first the
/// buffers that have been unused for longest. But it never frees buffers of a size while it has
/// only as many of this size as were recently in use at the same time, because the next step needs
/// them again. With a large model, the unused buffers can therefore take more than `retain_bytes`.
class buffer_pool {
public:
  explicit buffer_pool(std::size_t retain_bytes) noexcept;
  ~buffer_pool();
  buffer_pool(const buffer_pool&) = delete;
  buffer_pool& operator=(const buffer_pool&) = delete;

  /// The pool behind `payload::allocate`.
  static buffer_pool& process();

  /// From now on, new buffers of at least `bytes` bytes use memory that other processes on this
  /// host can read, if the system has such memory.
  void share_from(std::size_t bytes) noexcept { share_from_ = bytes; }

  /// Returns a buffer with one reference and a capacity of at least `bytes`. New memory is set to
  /// zero once, so that the system maps its pages now, and not at the first use.
  buffer* take(std::size_t bytes);

  /// Number of bytes in unused buffers.
  std::size_t retained() const;

  /// Returns those of `numbers` whose buffers this pool has freed. A number is a value of
  /// shared_file::number.
  std::vector<std::uint64_t> freed(std::span<const std::uint64_t> numbers) const;

private:
  class pooled;

  /// The buffers of one size.
  struct size_class {
    /// The unused buffers, in the order in which they were released.
    std::deque<std::unique_ptr<pooled>> unused;
    std::size_t in_use = 0;
    /// The largest number of buffers in use at the same time: in the current period of 512 calls of
    /// take(), and in the period before.
    std::size_t most = 0;
    std::size_t most_before = 0;

    bool has_too_many() const noexcept;
  };

  /// Makes a buffer whose memory other processes can open. Null if the system has too little of
  /// this memory, or if this process already has max_shared of these buffers.
  pooled* take_shared(std::size_t capacity);
  void give_back(pooled* x) noexcept;
  void note_use(std::size_t capacity);
  std::unique_ptr<pooled> take_excess() noexcept;

  mutable std::mutex mutex_;
  std::atomic<std::size_t> share_from_ = std::numeric_limits<std::size_t>::max();
  std::unordered_map<std::size_t, size_class> sizes_;
  std::unordered_set<std::uint64_t> shared_;
  std::uint64_t next_number_ = 1;
  std::size_t retained_ = 0;
  std::size_t retain_bytes_;
  std::uint64_t taken_ = 0;
  std::uint64_t released_ = 0;
};

} // namespace troupe
