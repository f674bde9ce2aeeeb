#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/devices/device_error.hpp"
#include "kernels/graph/dtype.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace troupe::cuda {

/// There is no driver or no such device, device memory is too small, or a launch failed.
using troupe::device_error;

/// c = op(a) op(b), for matrices in device memory, row-major without gaps. op(a) is (m, k), op(b)
/// is (k, n), and c is (m, n) and does not overlap them. op transposes if requested. There are
/// `batch` products, whose operands follow each other in memory. If k is 0, c is 0.
struct product {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::size_t batch = 1;
  /// The type of a and b: float32, bfloat16 or float16. Sums are computed in float32.
  dtype operands = dtype::float32;
  /// The type of c: that of the operands, or float32.
  dtype result = dtype::float32;
  /// Operands of float32 may be rounded to TF32: 10 bits of precision instead of 23.
  bool tf32 = false;
  /// An epilogue, applied before the result is rounded: c = after(op(a) op(b) + bias). The bias is
  /// n elements of the type `result`, added to each row; null for none. `after` is `relu`, or `end`
  /// for none. Only if device::fuses returns true.
  const void* bias = nullptr;
  operation after = operation::end;
};

/// Recorded work (a CUDA graph). It can run any number of times.
class recording {
public:
  recording() = default;
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  virtual ~recording() = default;

  /// Runs the work with the same arguments, on the current contents of the memory.
  virtual void replay(stream where) = 0;
};

/// A mark in the work of a stream. Other streams and the host can wait until the work before it is
/// done. Its device must outlive it.
class event {
public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  virtual ~event() = default;

  /// Sets the mark behind all work that was submitted to the stream so far. An earlier mark of this
  /// event is forgotten.
  virtual void record(stream where) = 0;
  /// Work that is submitted to the stream from now on begins after the mark. Returns at once. The
  /// stream may belong to another object, for the same GPU or another one, and to another thread,
  /// as long as nobody records the event meanwhile.
  virtual void hold(stream where) = 0;
  /// The host waits for the mark. Throws device_error if a kernel has failed.
  virtual void wait() = 0;
};

/// A point in time at which a device reaches a place in the work of a stream. For benchmarks. Its
/// device must outlive it.
class time_mark {
public:
  time_mark() = default;
  time_mark(const time_mark&) = delete;
  time_mark& operator=(const time_mark&) = delete;
  virtual ~time_mark() = default;

  /// Sets the mark behind all work that was submitted to the stream so far.
  virtual void record(stream where) = 0;
  /// The host waits for both marks. Returns the seconds from `begin`, a mark of the same device, to
  /// this one. Throws device_error if a kernel has failed.
  virtual double seconds_since(const time_mark& begin) = 0;
};

/// The services of a GPU that executors need in addition to kernels: memory, copies, and matrix
/// products. Work runs in the order of a stream, and calls return before it is done. The streams
/// run beside each other, unless an event orders them. Only one thread at a time may use it, with
/// its streams, events (except event::hold) and recordings.
class device {
public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  /// For example "NVIDIA H200".
  virtual std::string name() const = 0;
  /// The number of the GPU on this machine.
  virtual std::size_t number() const = 0;
  virtual stream main_stream() const = 0;
  /// For copies beside the work of the main stream: to the host, and to the device.
  virtual stream copy_stream() const = 0;
  virtual stream upload_stream() const = 0;
  /// Makes it the current device of this thread, for kernels, products, allocations, releases and
  /// `make_event`. The thread that opened it need not call this, unless it has entered or opened
  /// another device since.
  virtual void enter() = 0;
  /// Throws device_error if there is too little memory. The text gives the free memory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Pinned memory of the host: copies from and to it run while the host goes on. Throws
  /// device_error if there is too little.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  /// No copy may be under way.
  virtual void release_pinned(void* memory) noexcept = 0;
  /// From the host to the device. If the source is pinned, it must not change until the copy is
  /// done. Any other source may be overwritten after the call, which may wait for the stream.
  virtual void copy_in(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// From the device to the host. The result is available when the host has waited for the stream,
  /// or for an event after the copy. If the destination is not pinned, the call itself waits.
  virtual void copy_out(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// From device memory to device memory of the same GPU. The two must not overlap.
  virtual void copy_inside(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// Lets kernels and copies of this GPU access the memory of GPU number `other` in this process.
  /// False if that is not possible. Always true for this GPU itself.
  virtual bool reach(std::size_t other) = 0;
  /// From memory of a GPU that this one can reach, to memory of this one. The two must not overlap.
  virtual void copy_from(stream where, void* to, std::size_t other, const void* from,
                         std::size_t bytes) = 0;
  /// Waits for all work of the stream. Throws device_error if a kernel has failed.
  virtual void synchronize(stream where) = 0;
  virtual std::unique_ptr<event> make_event() = 0;
  virtual std::unique_ptr<time_mark> make_time_mark() = 0;
  /// Gets ready for `multiply`: loads the library for products, and allocates its work space. With
  /// epilogues, also for products with them, and for `fuses`. Call it before products are recorded.
  /// A later call does nothing. Throws device_error if a library is missing or does not start.
  virtual void prepare_products(bool with_epilogues) = 0;
  virtual void multiply(stream where, const product& x) = 0;
  /// True if it multiplies matrices of this type.
  virtual bool multiplies(dtype type) const = 0;
  /// True if `multiply` can compute this product with its epilogue. It can then also do this
  /// while work is recorded.
  virtual bool fuses(const product& x) = 0;

  /// Until `end_recording`, kernels and products that are submitted to the stream are recorded
  /// instead of run. Do not allocate, release, copy or wait in between, on any stream, and record
  /// no event.
  virtual void begin_recording(stream where) = 0;
  virtual std::unique_ptr<recording> end_recording(stream where) = 0;
};

/// Opens GPU number `index` of this machine. Throws device_error if there is no driver, no such
/// device, or a device that is too old for this program.
std::unique_ptr<device> open_device(std::size_t index);

/// Throws device_error, with the name and the size, if the last launch of a kernel failed. For
/// kernel.hpp.
void check_launch(const char* name, std::size_t blocks, std::size_t shared_bytes);

enum class memory_kind : std::uint8_t { device, pinned };

/// n elements of device memory, or of pinned memory, freed at the end. The device must outlive it.
template <class T, memory_kind Kind = memory_kind::device>
class buffer {
public:
  buffer() = default;
  buffer(device& where, std::size_t n)
    : where_(&where), data_(n > 0 ? static_cast<T*>(allocate(n * sizeof(T))) : nullptr), size_(n) {}
  buffer(buffer&& x) noexcept { swap(x); }
  buffer& operator=(buffer&& x) noexcept {
    swap(x);
    return *this;
  }
  ~buffer() {
    if (data_ == nullptr)
      return;
    if constexpr (Kind == memory_kind::pinned)
      where_->release_pinned(data_);
    else
      where_->release(data_);
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }

private:
  void* allocate(std::size_t bytes) {
    if constexpr (Kind == memory_kind::pinned)
      return where_->allocate_pinned(bytes);
    else
      return where_->allocate(bytes);
  }
  void swap(buffer& x) noexcept {
    std::swap(where_, x.where_);
    std::swap(data_, x.data_);
    std::swap(size_, x.size_);
  }

  device* where_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe::cuda
