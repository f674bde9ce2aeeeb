#pragma once

#include "kernels/cuda/device.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#ifndef __CUDACC__
#include <array>
#include <cstring>
#include <functional>
#include <source_location>
#endif

// How the kernels of this folder are written. A kernel is a struct. Its members are the arguments
// of the kernel. Its `operator()(const thread&) const` is the code that each thread runs. This code
// accesses memory only through views. Threads synchronize at barriers and exchange values by
// shuffles.
//
// A file of kernels is compiled twice. nvcc compiles it to device code. In device code, a view is a
// pointer, and a barrier is __syncthreads(). A C++ compiler compiles it to host code for the tests.
// In host code, a thread is a fiber, and each access is checked (tests/kernels/cuda/simulator.hpp).

#ifdef __CUDACC__
#define TROUPE_DEVICE __device__ __forceinline__
/// Put this before a loop over an array that should be in registers. The compiler then unrolls the
/// loop, so it knows each index. Registers cannot be indexed at run time.
#define TROUPE_UNROLL _Pragma("unroll")
/// Put this before a loop that the compiler must not unroll, because the unrolled loop would take
/// too many registers.
#define TROUPE_ONE_BY_ONE _Pragma("unroll 1")
#else
#define TROUPE_DEVICE inline
#define TROUPE_UNROLL
#define TROUPE_ONE_BY_ONE
#endif

namespace troupe::cuda {

/// The number of threads in a warp, and in a block (the same for all kernels). A lane is a thread
/// of a warp.
inline constexpr unsigned warp_threads = 32;
inline constexpr unsigned block_threads = 256;
inline constexpr unsigned block_warps = block_threads / warp_threads;
/// The largest number of blocks in a launch on a GPU. More blocks would not be faster. If there are
/// more elements than threads, each thread processes several of them in a loop.
inline constexpr std::size_t most_gpu_blocks = 4096;

#ifdef __CUDACC__
inline constexpr std::size_t most_blocks() {
  return most_gpu_blocks;
}
#else
/// The largest number of blocks of a launch in the simulator. Tests choose a small number, so that
/// loops run several rounds (tests/kernels/cuda/simulator.hpp).
std::size_t most_blocks();
#endif

/// Number of blocks for n pieces of work, such as elements, if each block does `each` pieces in one
/// round of its loop.
inline std::size_t blocks_for(std::size_t n, std::size_t each = block_threads) {
  return std::min((n + each - 1) / each, most_blocks());
}

/// The size of a launch. Each block has block_threads threads. A launch with 0 blocks does nothing.
struct launch_size {
  std::size_t blocks = 0;
  /// Bytes of shared memory per block.
  std::size_t shared_bytes = 0;
};

/// W neighbouring elements. A thread loads or stores a pack with one instruction if the pack has at
/// most 16 bytes. A kernel whose speed is limited by memory needs packs to reach the bandwidth of
/// the memory.
template <class T, unsigned W>
struct alignas(sizeof(T) * W) pack {
  T x[W];
};

#ifdef __CUDACC__

/// A range of memory that kernels access: `size` elements of T.
template <class T>
struct view {
  using element = std::remove_const_t<T>;
  T* data = nullptr;
  std::size_t size = 0;

  TROUPE_DEVICE element load(std::size_t i) const { return data[i]; }
  TROUPE_DEVICE void store(std::size_t i, T x) const { data[i] = x; }
  /// Elements [i, i + W). `i` is a multiple of W, and `data` is aligned to W elements.
  template <unsigned W>
  TROUPE_DEVICE pack<element, W> load_pack(std::size_t i) const {
    return *reinterpret_cast<const pack<element, W>*>(data + i);
  }
  template <unsigned W>
  TROUPE_DEVICE void store_pack(std::size_t i, const pack<element, W>& x) const {
    *reinterpret_cast<pack<element, W>*>(data + i) = x;
  }
};

/// The position of a thread, and the functions by which it synchronizes with other threads.
struct thread {
  /// index() is the number of the thread in its block. block() is the number of this block, and
  /// blocks() is the number of blocks in the launch.
  TROUPE_DEVICE unsigned index() const { return threadIdx.x; }
  TROUPE_DEVICE std::size_t block() const { return blockIdx.x; }
  TROUPE_DEVICE std::size_t blocks() const { return gridDim.x; }
  /// Waits until all threads of the block have called this; all of them must call it. Afterwards,
  /// each thread sees everything that the other threads wrote before their calls.
  TROUPE_DEVICE void barrier() const { __syncthreads(); }
  /// Returns the argument x of the lane with the number (lane() ^ mask). All lanes of the warp must
  /// call it.
  template <class T>
  TROUPE_DEVICE T shuffle_xor(T x, unsigned mask) const {
    return __shfl_xor_sync(0xffffffffU, x, static_cast<int>(mask));
  }
  /// The first n elements of the block's shared memory.
  template <class T>
  TROUPE_DEVICE view<T> shared(std::size_t n) const {
    extern __shared__ __align__(32) double memory[];
    return {reinterpret_cast<T*>(memory), n};
  }

  TROUPE_DEVICE unsigned lane() const { return index() % warp_threads; }
  TROUPE_DEVICE unsigned warp() const { return index() / warp_threads; }
  /// first() is the number of the thread among the threads of all blocks. stride() is the number of
  /// these threads. A loop over elements starts at first() and continues in steps of stride().
  TROUPE_DEVICE std::size_t first() const { return block() * block_threads + index(); }
  TROUPE_DEVICE std::size_t stride() const { return blocks() * block_threads; }
  /// Like first() and stride(), for warps instead of threads.
  TROUPE_DEVICE std::size_t first_warp() const { return block() * block_warps + warp(); }
  TROUPE_DEVICE std::size_t warp_stride() const { return blocks() * block_warps; }
};

template <class Kernel>
__global__ void __launch_bounds__(block_threads) run_kernel(const Kernel kernel) {
  kernel(thread{});
}

/// Runs a kernel that declares `blocks_at_once`: how many blocks a multiprocessor should run at the
/// same time. The compiler then limits the registers of a thread, so that there are enough
/// registers for this number of blocks. Without the declaration, the compiler may keep some values
/// in memory instead of registers, to let more blocks run.
template <class Kernel>
__global__ void __launch_bounds__(block_threads, Kernel::blocks_at_once)
  run_bounded_kernel(const Kernel kernel) {
  kernel(thread{});
}

/// Submits a kernel to the stream. Throws device_error if it cannot be launched.
template <class Kernel>
void launch(stream where, const char* name, const launch_size& size, const Kernel& kernel) {
  static_assert(sizeof(Kernel) <= 4096, "arguments of a kernel are at most 4 KiB");
  if (size.blocks == 0)
    return;
  const auto blocks = static_cast<unsigned>(size.blocks);
  const auto handle = static_cast<cudaStream_t>(where.handle);
  if constexpr (requires { Kernel::blocks_at_once; })
    run_bounded_kernel<<<blocks, block_threads, size.shared_bytes, handle>>>(kernel);
  else
    run_kernel<<<blocks, block_threads, size.shared_bytes, handle>>>(kernel);
  check_launch(name, size.blocks, size.shared_bytes);
}

#else

// Functions that the tests define: see tests/kernels/cuda/simulator.hpp.
namespace simulation {

struct place {
  unsigned index = 0;
  std::size_t block = 0;
  std::size_t blocks = 0;
};

/// The position of the thread that runs now.
const place& here() noexcept;
/// check_read() reports an error if the current thread may not read element i. check_write()
/// reports an error if it may not write element i. `data` points to `size` elements of `element`
/// bytes each.
void check_read(const void* data, std::size_t i, std::size_t size, std::size_t element);
void check_write(const void* data, std::size_t i, std::size_t size, std::size_t element);
/// Reports an error unless i is a multiple of the width of a pack.
void check_pack(std::size_t i, unsigned width);
void barrier(const std::source_location& where);
/// The values that a lane passes to the other lanes of its warp.
using lane_words = std::array<std::uint64_t, 4>;
using warp_words = std::array<lane_words, warp_threads>;
/// The argument `what` of meet() for a product of tensor cores (kernels/cuda/tensor_core.hpp).
inline constexpr const char* a_product = "a product";
/// Waits until all lanes of the warp have called this at the same line of code. Returns the values
/// that each lane passed as `mine`. These values are valid until this lane's next call. `what`
/// names the operation in errors.
const warp_words& meet(const lane_words& mine, const char* what, const std::source_location& where);
/// Passes `value` to the other lanes of the warp. Returns the value of the lane with the number
/// (lane ^ mask).
std::uint64_t exchange(std::uint64_t value, unsigned mask, const std::source_location& where);
void* shared(std::size_t bytes);
/// A copy that continues while the thread runs (kernels/cuda/tensor_core.hpp). start_copy() takes
/// the value of element i, but does not write it yet. Until wait_for_copies() writes it, all bits
/// of the element are 1, which is a NaN in each floating-point type. So a result that does not wait
/// is wrong. Both functions check the write like check_write().
void start_copy(void* data, std::size_t i, std::size_t size, std::size_t element,
                const void* value);
void wait_for_copies();
/// Must be called where a thread begins and ends. end_thread() reports an error if the thread has
/// not waited for all its copies. `name` is the name of the kernel.
void begin_thread();
void end_thread(const char* name);
void run(stream where, const char* name, const launch_size& size, std::function<void()> kernel);

} // namespace simulation

template <class T>
struct view {
  using element = std::remove_const_t<T>;
  T* data = nullptr;
  std::size_t size = 0;

  element load(std::size_t i) const {
    simulation::check_read(data, i, size, sizeof(T));
    return data[i];
  }
  void store(std::size_t i, T x) const {
    simulation::check_write(data, i, size, sizeof(T));
    data[i] = x;
  }
  template <unsigned W>
  pack<element, W> load_pack(std::size_t i) const {
    simulation::check_pack(i, W);
    simulation::check_read(data, i / W, size / W, sizeof(T) * W);
    pack<element, W> result{};
    std::copy_n(data + i, W, result.x);
    return result;
  }
  template <unsigned W>
  void store_pack(std::size_t i, const pack<element, W>& x) const {
    simulation::check_pack(i, W);
    simulation::check_write(data, i / W, size / W, sizeof(T) * W);
    std::copy_n(x.x, W, data + i);
  }
};

struct thread {
  using location = std::source_location;

  unsigned index() const { return simulation::here().index; }
  std::size_t block() const { return simulation::here().block; }
  std::size_t blocks() const { return simulation::here().blocks; }
  void barrier(const location& where = location::current()) const { simulation::barrier(where); }
  template <class T>
  T shuffle_xor(T x, unsigned mask, const location& where = location::current()) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof(T));
    bits = simulation::exchange(bits, mask, where);
    std::memcpy(&x, &bits, sizeof(T));
    return x;
  }
  template <class T>
  view<T> shared(std::size_t n) const {
    return {static_cast<T*>(simulation::shared(n * sizeof(T))), n};
  }

  unsigned lane() const { return index() % warp_threads; }
  unsigned warp() const { return index() / warp_threads; }
  std::size_t first() const { return block() * block_threads + index(); }
  std::size_t stride() const { return blocks() * block_threads; }
  std::size_t first_warp() const { return block() * block_warps + warp(); }
  std::size_t warp_stride() const { return blocks() * block_warps; }
};

template <class Kernel>
void launch(stream where, const char* name, const launch_size& size, const Kernel& kernel) {
  static_assert(sizeof(Kernel) <= 4096, "arguments of a kernel are at most 4 KiB");
  simulation::run(where, name, size, [kernel, name] {
    simulation::begin_thread();
    kernel(thread{});
    simulation::end_thread(name);
  });
}

#endif

// -- loops over elements

/// The usual number of elements of a pack. A pack of float32 then has 16 bytes, and a pack of
/// 16-bit elements has 8 bytes.
inline constexpr unsigned pack_width = 4;

template <unsigned W>
using width = std::integral_constant<unsigned, W>;

/// The address of a vector, and the size of its elements.
struct element_address {
  const void* data = nullptr;
  std::size_t bytes = sizeof(float);

  /// True if the address is aligned for packs of `width` elements. A null address is always
  /// aligned.
  bool packs(unsigned width = pack_width) const {
    return reinterpret_cast<std::uintptr_t>(data) % (width * bytes) == 0;
  }
};

/// The loop of an elementwise kernel over n elements. If all addresses are aligned, it goes through
/// packs of P elements, and then through the last elements one by one. Otherwise, it goes through
/// all elements one by one.
template <unsigned P>
class loop_of_packs {
public:
  loop_of_packs() = default;
  loop_of_packs(std::size_t n, std::initializer_list<element_address> all) : n_(n), packs_(n / P) {
    for (const auto& x : all)
      require(x);
  }
  /// Adds a vector that the kernel accesses. If its address is not aligned for packs, the loop goes
  /// through all elements one by one.
  void require(const element_address& x) {
    if (!x.packs(P))
      one_by_one();
  }
  void one_by_one() { packs_ = 0; }
  bool has_packs() const { return packs_ > 0; }

  /// Number of blocks for a launch.
  std::size_t blocks() const { return blocks_for(packs_ > 0 ? packs_ : n_); }
  /// Calls f(width<W>{}, i) for elements [i, i + W). W is P for packs, and 1 for single elements.
  template <class F>
  TROUPE_DEVICE void visit(const thread& t, F f) const {
    for (auto p = t.first(); p < packs_; p += t.stride())
      f(width<P>{}, p * P);
    for (auto i = packs_ * P + t.first(); i < n_; i += t.stride())
      f(width<1>{}, i);
  }

private:
  std::size_t n_ = 0;
  std::size_t packs_ = 0;
};

using element_loop = loop_of_packs<pack_width>;

template <unsigned W>
TROUPE_DEVICE pack<float, W> load_floats(width<W>, const view<const float>& x, std::size_t i) {
  return x.load_pack<W>(i);
}
template <unsigned W>
TROUPE_DEVICE pack<float, W> load_floats(width<W>, const view<float>& x, std::size_t i) {
  return x.load_pack<W>(i);
}
// load_stored() loads elements without converting them. floats_of() converts them. So a kernel can
// start several loads before it converts the first elements.
template <unsigned W>
TROUPE_DEVICE pack<float, W> load_stored(width<W>, const view<const float>& x, std::size_t i) {
  return x.load_pack<W>(i);
}
template <unsigned W>
TROUPE_DEVICE pack<float, W> floats_of(const pack<float, W>& x) {
  return x;
}
template <unsigned W>
TROUPE_DEVICE void store_floats(const view<float>& to, std::size_t i, const pack<float, W>& x) {
  to.store_pack<W>(i, x);
}

// -- sums and maxima over the threads of a warp or a block
// All threads of the warp or block must call the function, and get the same result. The order of
// additions is fixed.

template <class T>
TROUPE_DEVICE T warp_sum(const thread& t, T x) {
  for (unsigned mask = warp_threads / 2; mask > 0; mask /= 2)
    x += t.shuffle_xor(x, mask);
  return x;
}

/// Returns the larger number. If one number is NaN, returns the other number.
TROUPE_DEVICE float larger_of(float a, float b) {
#ifdef __CUDACC__
  return fmaxf(a, b);
#else
  return a > b || b != b ? a : b;
#endif
}

/// The largest x of the warp. Skips NaNs, like the CPU.
TROUPE_DEVICE float warp_maximum(const thread& t, float x) {
  for (unsigned mask = warp_threads / 2; mask > 0; mask /= 2)
    x = larger_of(x, t.shuffle_xor(x, mask));
  return x;
}

/// The sum of x over the block. `space` is shared memory of block_warps elements. Only block_sum
/// and block_maximum may use it.
template <class T>
TROUPE_DEVICE T block_sum(const thread& t, T x, const view<T>& space) {
  x = warp_sum(t, x);
  t.barrier(); // all threads have read an earlier sum in the same space
  if (t.lane() == 0)
    space.store(t.warp(), x);
  t.barrier();
  T result = 0;
  for (unsigned i = 0; i < block_warps; ++i)
    result += space.load(i);
  return result;
}

/// The largest x of the block. Skips NaNs.
TROUPE_DEVICE float block_maximum(const thread& t, float x, const view<float>& space) {
  x = warp_maximum(t, x);
  t.barrier(); // all threads have read an earlier result in the same space
  if (t.lane() == 0)
    space.store(t.warp(), x);
  t.barrier();
  float result = space.load(0);
  for (unsigned i = 1; i < block_warps; ++i)
    result = larger_of(result, space.load(i));
  return result;
}

} // namespace troupe::cuda
