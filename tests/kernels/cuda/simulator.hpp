#pragma once

#include "kernels/cuda/kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace troupe::test {

// Runs kernels on the CPU. Each thread of a block is a fiber (Boost.Context) that runs until it
// waits for others. So barriers and shuffles really synchronize, and a kernel that lacks a
// necessary barrier computes a wrong result. Products of a warp (kernels/cuda/tensor_core.hpp) are
// computed like shuffles: all lanes pass on their parts. Blocks run one after another.
//
// A simulation_error names the kernel, the block, the thread and the fault:
// - an access outside a view or its allocation, or to host memory;
// - a read of memory that was never written;
// - a race: two threads access an element, at least one of them writes, and no barrier separates
//   them, or they are in different blocks of a launch;
// - a barrier, shuffle or product that only some threads reach, or that threads reach at different
//   lines;
// - an address that is not a multiple of the size of its element;
// - a thread that ends without waiting for its asynchronous copies;
// - a launch with more blocks or shared memory than every GPU takes.
//
// Any thread may run kernels or allocate; the kernels run one after another. Launches go to the
// streams of simulated_streams.hpp.

struct simulation_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The order in which blocks run, and in which the threads of a block run.
enum class thread_order : std::uint8_t { forward, backward, shuffled };

/// Sets the order of all launches from now on. The default is forward.
void set_order(thread_order order);

/// set_most_blocks() sets the largest number of blocks in launches from now on. few_blocks is the
/// default. With it, most loops over elements run several rounds.
inline constexpr std::size_t few_blocks = 3;
void set_most_blocks(std::size_t blocks);

/// The number of kernels launched so far.
std::size_t launches() noexcept;
/// The number of tile products that warps have computed so far (kernels/cuda/tensor_core.hpp).
std::size_t tensor_products() noexcept;

/// Calls f three times: with blocks and threads in forward order and as many blocks as on a GPU, in
/// backward order with one block, and in shuffled order with a few blocks.
template <class F>
void in_all_orders(F f) {
  constexpr std::pair<thread_order, std::size_t> all[] = {
    {thread_order::forward, cuda::most_gpu_blocks},
    {thread_order::backward, 1},
    {thread_order::shuffled, few_blocks}};
  for (const auto& [order, blocks] : all) {
    set_order(order);
    set_most_blocks(blocks);
    f();
  }
  set_order(thread_order::forward);
  set_most_blocks(few_blocks);
}

/// Memory of the simulated device between guard bands. At first, its contents count as not written.
void* allocate_simulated(std::size_t bytes);
/// Throws simulation_error if a guard band was overwritten, or if the simulator did not allocate
/// this memory.
void free_simulated(void* memory);
/// Notes that the host has written these bytes, for example in a copy to the device. Throws
/// simulation_error if they are not all in one allocation.
void mark_written(void* memory, std::size_t bytes);
/// Throws simulation_error if these bytes are not all in one allocation, or if some were never
/// written.
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
