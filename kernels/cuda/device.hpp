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

/// Thrown if there is no driver or no GPU with the requested number, if a library is missing, if
/// memory is too small, or if a kernel or a copy failed.
using troupe::device_error;

/// A matrix product: c = op(a) op(b). The matrices are in device memory and row-major. op(x) is x,
/// or its transpose if transpose_a (transpose_b) is true. op(a) is (m, k), op(b) is (k, n), and c
/// is (m, n). c must not overlap a or b. `batch` products of these sizes are computed. Their
/// matrices follow each other in memory. If k is 0, c becomes 0.
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
  /// The distance between neighbouring rows in memory, in elements: lead_a for a, lead_b for b. 0
  /// if there are no gaps between rows. Must be 0 if `batch` is more than 1.
  std::size_t lead_a = 0;
  std::size_t lead_b = 0;
  /// The type of a and b: float32, bfloat16 or float16. Sums are computed in float32.
  dtype operands = dtype::float32;
  /// The type of c: the type of a and b, or float32.
  dtype result = dtype::float32;
  /// True if operands of float32 may be rounded to TF32: 10 bits of precision instead of 23.
  bool tf32 = false;
  /// An epilogue: c = after(op(a) op(b) + addend + bias), rounded only once, at the end. `addend`
  /// is a matrix like c, and may be c; null if there is none. `bias` has n elements of the type
  /// `result`, which are added to each row of the product; null if there is no bias. `after` is
  /// operation::relu, or operation::end for no function. An epilogue is allowed only if
  /// device::fuses returns true for the product.
  const void* addend = nullptr;
  const void* bias = nullptr;
  operation after = operation::end;

  bool ends() const noexcept {
    return addend != nullptr || bias != nullptr || after != operation::end;
  }
};

/// Recorded work (a CUDA graph). It can run any number of times.
class recording {
public:
  recording() = default;
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  virtual ~recording() = default;

  /// Runs the recorded work. It uses the recorded arguments, such as addresses, and the current
  /// contents of the memory.
  virtual void replay(stream where) = 0;
};

/// A mark in the work of a stream. Other streams and the host can wait until the work before the
/// mark is done. The device that made the event must outlive the event.
class event {
public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  virtual ~event() = default;

  /// Sets the mark after all work that was submitted to the stream so far. An earlier mark of this
  /// event is forgotten.
  virtual void record(stream where) = 0;
  /// Makes a stream wait for the mark: work that is submitted to the stream from now on begins
  /// after the mark. Returns at once. The stream may belong to another device object, for the same
  /// GPU or another one, and to another thread. No thread may record the event during this call.
  virtual void hold(stream where) = 0;
  /// Blocks the calling thread until the work before the mark is done. Throws device_error if a
  /// kernel has failed.
  virtual void wait() = 0;
};

/// Like an event, but it also records the time at which the device reaches it. Only benchmarks use
/// it. The device that made the mark must outlive it.
class time_mark {
public:
  time_mark() = default;
  time_mark(const time_mark&) = delete;
  time_mark& operator=(const time_mark&) = delete;
  virtual ~time_mark() = default;

  /// Sets the mark after all work that was submitted to the stream so far.
  virtual void record(stream where) = 0;
  /// Blocks the calling thread until the device has reached both marks. Returns the seconds from
  /// `begin`, a mark of the same device, to this mark. Throws device_error if a kernel has failed.
  virtual double seconds_since(const time_mark& begin) = 0;
};

/// Bytes of device memory that device::prepare_products allocates as work space of cuBLAS, and,
/// with epilogues, once more for cublasLt. NVIDIA recommends this size for Hopper, and less for
/// other GPUs.
inline constexpr std::size_t product_space_bytes = std::size_t{32} << 20;

/// The services of a GPU, other than kernels, that executors and updaters need: memory, copies,
/// streams, events and matrix products. Functions with a stream as argument submit work to it and
/// return before the work is done. The work of one stream runs in the order of submission.
/// Different streams run at the same time, unless an event orders them. Only one thread at a time
/// may use a device object, its streams, its events (except event::hold) and its recordings.
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
  /// Two more streams, for copies that run at the same time as the work of the main stream.
  /// copy_stream() is for copies to the host, upload_stream() is for copies to the device.
  virtual stream copy_stream() const = 0;
  virtual stream upload_stream() const = 0;
  /// Makes this device the current one of the calling thread. Kernels, products, allocations,
  /// releases and `make_event` use the current device. Opening a device also makes it the current
  /// one. A thread must call this again after it has entered or opened another device.
  virtual void enter() = 0;
  /// Allocates device memory. Throws device_error if the device has too little free memory. The
  /// error text says how much is free.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Allocates pinned (page-locked) memory of the host. A copy from or to pinned memory runs while
  /// the host continues. Throws device_error if there is too little memory.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  /// No copy from or to this memory may be running.
  virtual void release_pinned(void* memory) noexcept = 0;
  /// True if this memory of the host is pinned, by this device or another one.
  virtual bool is_pinned(const void* memory, std::size_t bytes) const = 0;
  /// Copies from the host to the device. The source must not change, and must not be freed, until
  /// the host has waited for the stream, or for an event that was recorded after the copy. This
  /// also applies to memory that is not pinned: the call may wait for such a copy, but need not.
  virtual void copy_in(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// Copies from the device to the host. The result is available after the host has waited for the
  /// stream, or for an event that was recorded after the copy. If the destination is not pinned
  /// memory, the call itself may wait for the copy.
  virtual void copy_out(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// Copies within the memory of this GPU. Source and destination must not overlap.
  virtual void copy_inside(stream where, void* to, const void* from, std::size_t bytes) = 0;
  /// Allows kernels and copies of this GPU to access the memory of GPU number `other` in this
  /// process. Returns false if this is not possible. Always returns true for this GPU itself.
  virtual bool reach(std::size_t other) = 0;
  /// Copies from the memory of GPU number `other`, which this GPU can reach, to the memory of this
  /// GPU. Source and destination must not overlap.
  virtual void copy_from(stream where, void* to, std::size_t other, const void* from,
                         std::size_t bytes) = 0;
  /// Blocks the calling thread until all work of the stream is done. Throws device_error if a
  /// kernel has failed.
  virtual void synchronize(stream where) = 0;
  virtual std::unique_ptr<event> make_event() = 0;
  virtual std::unique_ptr<time_mark> make_time_mark() = 0;
  /// Prepares for `multiply`: loads the library for matrix products, and allocates its work space
  /// (product_space_bytes). If `with_epilogues` is true, it also prepares for products with
  /// epilogues and for `fuses`, with as much work space again.
  /// Call it before products are recorded. It does nothing if everything is already prepared.
  /// Throws device_error if a library is missing or does not start.
  virtual void prepare_products(bool with_epilogues) = 0;
  virtual void multiply(stream where, const product& x) = 0;
  /// True if `multiply` supports operands of this type.
  virtual bool multiplies(dtype type) const = 0;
  /// True if `multiply` can compute this product with its epilogue. The product can then also be
  /// recorded.
  virtual bool fuses(const product& x) = 0;

  /// Kernels and products that are submitted to the stream between begin_recording() and
  /// end_recording() are recorded, and do not run. Between these calls, do not allocate, release,
  /// copy or wait, on any stream, and record no event.
  virtual void begin_recording(stream where) = 0;
  virtual std::unique_ptr<recording> end_recording(stream where) = 0;
};

/// Opens GPU number `index` of this machine. Throws device_error if there is no driver, if there is
/// no GPU with this number, or if the GPU is too old for this program.
std::unique_ptr<device> open_device(std::size_t index);

/// kernel.hpp calls this after each launch of a kernel. Throws device_error if the launch failed.
/// The error text contains these arguments: the name of the kernel and the size of the launch.
void check_launch(const char* name, std::size_t blocks, std::size_t shared_bytes);

enum class memory_kind : std::uint8_t { device, pinned };

/// n elements of device memory or of pinned memory. The destructor frees them. The device must
/// outlive the buffer.
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
