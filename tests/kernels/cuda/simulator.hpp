#pragma once

#include "kernels/cuda/kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

namespace troupe::test {

// Runs kernels on the CPU. Each thread of a block is a fiber (Boost.Context), and runs until it
// waits for others. So barriers and shuffles really meet, and a kernel that needs a barrier and has
// none computes something else. Blocks run one after another.
//
// A simulation_error names the kernel, the block, the thread and the fault:
// - an access beyond a view, or beyond the allocation behind it, or of memory of the host;
// - a read of memory that nothing has written;
// - a race: two threads touch an element, one of them writes, and no barrier is between them, or
//   they are in different blocks of a launch;
// - a barrier or shuffle that some threads reach and others do not, or at another line.
//
// One thread at a time may run kernels or allocate.

struct simulation_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The order in which the threads of a block, and the blocks, run.
enum class thread_order : std::uint8_t { forward, backward, shuffled };

/// Of all launches from now on. Forward at first.
void set_order(thread_order order);

/// Kernels that were launched so far.
std::size_t launches() noexcept;

/// Launches, and work that is submitted, until `end_recording` are kept and not done.
void begin_recording();
std::vector<std::function<void()>> end_recording();
/// Does it now, or keeps it while something is recorded.
void submit(std::function<void()> work);

/// Calls f once for each order.
template <class F>
void in_all_orders(F f) {
  for (const auto order : {thread_order::forward, thread_order::backward, thread_order::shuffled}) {
    set_order(order);
    f();
  }
  set_order(thread_order::forward);
}

/// Memory of the simulated device, between guard bands. Its contents count as not written.
void* allocate_simulated(std::size_t bytes);
/// Throws simulation_error if a guard band was written to, or if it is no such memory.
void free_simulated(void* memory);
/// The host has written these bytes, as by a copy to the device. Throws simulation_error unless
/// they are all in one allocation.
void mark_written(void* memory, std::size_t bytes);
/// Throws simulation_error unless these bytes are all in one allocation, and written.
void check_written(const void* memory, std::size_t bytes);

/// n elements of device memory.
template <class T>
class device_array {
public:
  explicit device_array(std::size_t n)
    : data_(static_cast<T*>(allocate_simulated(n * sizeof(T)))), size_(n) {}
  explicit device_array(const std::vector<T>& x) : device_array(x.size()) {
    std::copy(x.begin(), x.end(), data_);
    mark_written(data_, size_ * sizeof(T));
  }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() noexcept(false) { free_simulated(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

private:
  T* data_;
  std::size_t size_;
};

} // namespace troupe::test
