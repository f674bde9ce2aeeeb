#include "tests/kernels/cuda/simulator.hpp"

#include "kernels/function_ref.hpp"
#include "kernels/random.hpp"
#include "tests/kernels/cuda/memory_checks.hpp"
#include "tests/kernels/cuda/simulated_streams.hpp"

#include <boost/context/detail/fcontext.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace troupe::test {

namespace {

using namespace cuda;
namespace context = boost::context::detail;

enum class state : std::uint8_t { ready, at_barrier, in_warp, done };

constexpr std::size_t stack_bytes = std::size_t{64} * 1024;

/// A thread of the simulated block.
struct fiber {
  std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
  context::fcontext_t resume_at = nullptr;
  simulation::place place;
  state now = state::done;
  std::source_location where;
  /// Text for errors: what the fiber waits for.
  const char* what = "";
  simulation::lane_words words{};
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif
};

class simulator {
public:
  void run(const char* name, const launch_size& size, function_ref<void()> kernel);
  void order(thread_order x) { order_ = x; }
  std::size_t launches() const { return launches_; }
  std::size_t products() const { return products_; }

  const simulation::place& here() const { return current_->place; }
  void check(bool writes, const void* data, std::size_t i, std::size_t size, std::size_t element);
  void barrier(const std::source_location& where) { wait(state::at_barrier, "a barrier", where); }
  const simulation::warp_words& meet(const simulation::lane_words& mine, const char* what,
                                     const std::source_location& where);
  std::uint64_t exchange(std::uint64_t value, unsigned mask, const std::source_location& where);
  void* shared(std::size_t bytes);
  [[noreturn]] void fail(const std::string& text) const;

  checked_memory memory;

private:
  static void enter(context::transfer_t from);
  std::vector<std::size_t> ordered(std::size_t n) const;
  void run_block(std::size_t block);
  void abandon();
  void resume(fiber& x);
  void wait(state why, const char* what, const std::source_location& where);
  bool release_warps();
  bool release_barrier();
  void release(std::span<fiber> all, state why);
  moment now() const;

  std::array<fiber, block_threads> fibers_;
  /// The values that the lanes of each warp exchanged when they last met.
  std::array<simulation::warp_words, block_warps> words_{};
  fiber* current_ = nullptr;
  context::fcontext_t scheduler_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* scheduler_tsan_ = nullptr;
#endif
  thread_order order_ = thread_order::forward;
  std::size_t launches_ = 0;
  std::size_t products_ = 0;
  const char* name_ = "";
  launch_size size_;
  function_ref<void()> kernel_;
  std::uint32_t phase_ = 0;
  void* shared_ = nullptr;
  std::exception_ptr error_;
};

simulator& the_simulator() {
  static simulator result;
  return result;
}

/// Several threads may use devices, and all share the simulator. A launch, an allocation or a check
/// locks it.
std::mutex& one_at_a_time() {
  static std::mutex result;
  return result;
}

/// The largest shared memory of a block that all GPUs accept without further settings.
constexpr std::size_t most_shared_bytes = std::size_t{48} << 10;
constexpr std::size_t largest_grid = (std::size_t{1} << 31) - 1;

std::atomic<std::size_t> most_blocks_now{few_blocks};

void simulator::fail(const std::string& text) const {
  auto where = "kernel " + std::string(name_);
  if (current_ != nullptr)
    where += ", block " + std::to_string(here().block) + ", thread " + std::to_string(here().index);
  throw simulation_error(where + ": " + text);
}

moment simulator::now() const {
  return {launches_, static_cast<std::uint32_t>(here().block), phase_, here().index};
}

void simulator::check(bool writes, const void* data, std::size_t i, std::size_t size,
                      std::size_t element) {
  if (current_ == nullptr)
    throw simulation_error("memory of the device is touched outside of a kernel");
  const char* const verb = writes ? "write" : "read";
  if (i >= size)
    fail(std::string("a ") + verb + " of element " + std::to_string(i) + " of a view of "
         + std::to_string(size));
  if (reinterpret_cast<std::uintptr_t>(data) % element != 0)
    fail(std::string("a ") + verb + " of elements of " + std::to_string(element)
         + " bytes at an address that is not a multiple of this");
  auto* const words = memory.find(static_cast<const std::byte*>(data) + i * element, element);
  if (words == nullptr)
    fail(std::string("a ") + verb + " of element " + std::to_string(i)
         + " of a view that is not all in one allocation of the device");
  const auto moment = now();
  for (std::size_t k = 0; k < word::count(element); ++k)
    if (const auto* wrong = writes ? words[k].write(moment) : words[k].read(moment); *wrong != 0)
      fail(std::string(wrong) + " (element " + std::to_string(i) + " of " + std::to_string(size)
           + ")");
}

void* simulator::shared(std::size_t bytes) {
  if (bytes > size_.shared_bytes)
    fail(std::to_string(bytes) + " bytes of shared memory are used; the launch has "
         + std::to_string(size_.shared_bytes));
  return shared_;
}

// -- fibers

void simulator::enter(context::transfer_t from) {
  auto& self = *static_cast<simulator*>(from.data);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.scheduler_stack_, &self.scheduler_stack_bytes_);
#endif
  self.scheduler_ = from.fctx;
  try {
    self.kernel_();
  } catch (...) {
    if (!self.error_)
      self.error_ = std::current_exception();
  }
  self.current_->now = state::done;
#if defined(__SANITIZE_ADDRESS__)
  // Null, because this fiber will never be resumed.
  __sanitizer_start_switch_fiber(nullptr, self.scheduler_stack_, self.scheduler_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(self.scheduler_tsan_, 0);
#endif
  context::jump_fcontext(self.scheduler_, nullptr);
}

void simulator::resume(fiber& x) {
  current_ = &x;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, x.stack.get(), stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  scheduler_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(x.tsan, 0);
#endif
  x.resume_at = context::jump_fcontext(x.resume_at, this).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  current_ = nullptr;
}

/// Returns to the scheduler until all threads have arrived.
void simulator::wait(state why, const char* what, const std::source_location& where) {
  auto& self = *current_;
  self.now = why;
  self.what = what;
  self.where = where;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&self.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(scheduler_tsan_, 0);
#endif
  scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

const simulation::warp_words& simulator::meet(const simulation::lane_words& mine, const char* what,
                                              const std::source_location& where) {
  current_->words = mine;
  wait(state::in_warp, what, where);
  return words_[here().index / warp_threads];
}

std::uint64_t simulator::exchange(std::uint64_t value, unsigned mask,
                                  const std::source_location& where) {
  const auto& lanes = meet({value, mask}, "a shuffle", where);
  if (mask != lanes[0][1] || mask >= warp_threads)
    fail("lanes of a warp shuffle by different masks");
  return lanes[(here().index % warp_threads) ^ mask][0];
}

// -- blocks

/// Lets the threads continue if all of them wait at the same line. Otherwise, reports an error.
void simulator::release(std::span<fiber> all, state why) {
  const auto& first = *std::ranges::find(all, why, &fiber::now);
  const std::string what = first.what;
  const auto line = std::to_string(first.where.line());
  for (auto& x : all) {
    current_ = &x;
    if (x.now != why)
      fail("does not reach " + what + " at line " + line + ", in which other threads wait");
    if (x.where.line() != first.where.line()
        || std::string_view(x.where.file_name()) != first.where.file_name())
      fail("waits in " + std::string(x.what) + " at line " + std::to_string(x.where.line())
           + ", other threads at line " + line);
  }
  for (auto& x : all)
    x.now = state::ready;
  current_ = nullptr;
}

bool simulator::release_warps() {
  bool released = false;
  for (std::size_t first = 0; first < block_threads; first += warp_threads) {
    const std::span warp{&fibers_[first], warp_threads};
    const auto waits = [](const fiber& x) { return x.now == state::in_warp; };
    if (std::ranges::none_of(warp, waits))
      continue;
    release(warp, state::in_warp);
    std::ranges::transform(warp, words_[first / warp_threads].begin(), &fiber::words);
    released = true;
    if (std::string_view(warp[0].what) == simulation::a_product)
      ++products_;
  }
  return released;
}

bool simulator::release_barrier() {
  if (std::ranges::all_of(fibers_, [](const fiber& x) { return x.now == state::done; }))
    return false;
  release(fibers_, state::at_barrier);
  ++phase_;
  return true;
}

std::vector<std::size_t> simulator::ordered(std::size_t n) const {
  std::vector<std::size_t> result(n);
  std::iota(result.begin(), result.end(), std::size_t{0});
  if (order_ == thread_order::backward)
    std::ranges::reverse(result);
  if (order_ == thread_order::shuffled)
    random_stream(launches_, "order").shuffle(std::span{result});
  return result;
}

void simulator::run_block(std::size_t block) {
  phase_ = 0;
  for (unsigned i = 0; i < block_threads; ++i) {
    auto& x = fibers_[i];
    x.place = {i, block, size_.blocks};
    x.now = state::ready;
    x.resume_at = context::make_fcontext(x.stack.get() + stack_bytes, stack_bytes, enter);
#if defined(__SANITIZE_THREAD__)
    if (x.tsan == nullptr)
      x.tsan = __tsan_create_fiber(0);
#endif
  }
  const auto threads = ordered(block_threads);
  do {
    for (const auto i : threads)
      if (!error_ && fibers_[i].now == state::ready)
        resume(fibers_[i]);
  } while (!error_ && (release_warps() || release_barrier()));
  if (error_)
    std::rethrow_exception(error_);
}

/// Abandons fibers that an error has interrupted. They never end, so their stacks are not reused.
void simulator::abandon() {
  current_ = nullptr;
  for (auto& x : fibers_)
    if (x.now != state::done)
      x = fiber{};
}

void simulator::run(const char* name, const launch_size& size, function_ref<void()> kernel) {
  const std::scoped_lock alone{one_at_a_time()};
  name_ = name;
  size_ = size;
  kernel_ = kernel;
  if (size.blocks > largest_grid || size.shared_bytes > most_shared_bytes)
    fail("a launch of " + std::to_string(size.blocks) + " blocks with "
         + std::to_string(size.shared_bytes) + " bytes of shared memory; a GPU takes "
         + std::to_string(largest_grid) + " and " + std::to_string(most_shared_bytes));
  error_ = nullptr;
  ++launches_;
  for (const auto block : ordered(size.blocks)) {
    shared_ = memory.allocate(size_.shared_bytes);
    try {
      run_block(block);
    } catch (...) {
      abandon();
      memory.release(shared_);
      throw;
    }
    if (const auto wrong = memory.release(shared_); !wrong.empty())
      fail(wrong);
  }
}

} // namespace

void set_order(thread_order order) {
  the_simulator().order(order);
}

void set_most_blocks(std::size_t blocks) {
  most_blocks_now = blocks;
}

std::size_t launches() noexcept {
  const std::scoped_lock alone{one_at_a_time()};
  return the_simulator().launches();
}

std::size_t tensor_products() noexcept {
  const std::scoped_lock alone{one_at_a_time()};
  return the_simulator().products();
}

void* allocate_simulated(std::size_t bytes) {
  const std::scoped_lock alone{one_at_a_time()};
  return the_simulator().memory.allocate(bytes);
}

void free_simulated(void* memory) {
  const std::scoped_lock alone{one_at_a_time()};
  if (const auto wrong = the_simulator().memory.release(memory); !wrong.empty())
    throw simulation_error(wrong);
}

namespace {

std::span<word> words_of(const void* memory, std::size_t bytes) {
  if (bytes == 0)
    return {};
  auto* const first = the_simulator().memory.find(memory, bytes);
  if (first == nullptr)
    throw simulation_error("a copy or product beyond an allocation of the device");
  return {first, word::count(bytes)};
}

} // namespace

void mark_written(void* memory, std::size_t bytes) {
  const std::scoped_lock alone{one_at_a_time()};
  for (auto& x : words_of(memory, bytes))
    x.fill();
}

void check_written(const void* memory, std::size_t bytes) {
  const std::scoped_lock alone{one_at_a_time()};
  for (const auto& x : words_of(memory, bytes))
    if (!x.is_written())
      throw simulation_error("a copy or product reads memory that nothing has written");
}

} // namespace troupe::test

std::size_t troupe::cuda::most_blocks() {
  return test::most_blocks_now;
}

namespace troupe::cuda::simulation {

using test::the_simulator;

const place& here() noexcept {
  return the_simulator().here();
}
void check_read(const void* data, std::size_t i, std::size_t size, std::size_t element) {
  the_simulator().check(false, data, i, size, element);
}
void check_write(const void* data, std::size_t i, std::size_t size, std::size_t element) {
  the_simulator().check(true, data, i, size, element);
}
void check_pack(std::size_t i, unsigned width) {
  if (i % width != 0)
    the_simulator().fail("a pack of " + std::to_string(width) + " elements begins at element "
                         + std::to_string(i));
}
void barrier(const std::source_location& where) {
  the_simulator().barrier(where);
}
const warp_words& meet(const lane_words& mine, const char* what,
                       const std::source_location& where) {
  return the_simulator().meet(mine, what, where);
}
std::uint64_t exchange(std::uint64_t value, unsigned mask, const std::source_location& where) {
  return the_simulator().exchange(value, mask, where);
}
void* shared(std::size_t bytes) {
  return the_simulator().shared(bytes);
}
void run(stream where, const char* name, const launch_size& size, std::function<void()> kernel) {
  test::submit(where, [name, size, kernel] { the_simulator().run(name, size, kernel); });
}

} // namespace troupe::cuda::simulation
