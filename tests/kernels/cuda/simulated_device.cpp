#include "tests/kernels/cuda/simulated_device.hpp"

#include "kernels/cpu/conversions.hpp"
#include "kernels/cpu/executor_state.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cuda/out_of_memory.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <mutex>
#include <utility>

namespace troupe::test {

namespace {

/// Runs a function in a place where exceptions are not allowed. A simulation_error ends the
/// process.
template <class F>
void or_abort(F f) noexcept {
  try {
    f();
  } catch (const simulation_error& e) {
    std::cerr << e.what() << '\n';
    std::abort();
  }
}

simulated_stream& stream_of(cuda::stream x) {
  return *static_cast<simulated_stream*>(x.handle);
}

/// True if these bytes are in one range of memory. `ranges` has the first byte and the size of each
/// range.
bool lies_in(const std::map<const std::byte*, std::size_t>& ranges, const void* memory,
             std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(memory);
  const auto after = ranges.upper_bound(first);
  if (after == ranges.begin())
    return false;
  const auto& [begin, size] = *std::prev(after);
  return first + bytes <= begin + size;
}

/// The pinned memory of all devices.
struct all_pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> ranges;
};

all_pinned& everywhere() {
  static all_pinned result;
  return result;
}

} // namespace

simulated_device::simulated_device(std::optional<std::uint64_t> seed) : streams_(3, seed) {
  entered() = this;
  streams_.check_submit = [this] { check_entered(); };
}

simulated_device::~simulated_device() {
  auto& all = everywhere();
  const std::lock_guard guard{all.mutex};
  for (const auto& [begin, x] : pinned_) // memory that a test has not released
    all.ranges.erase(begin);
  if (entered() == this)
    entered() = nullptr;
}

const simulated_device*& simulated_device::entered() {
  thread_local const simulated_device* result = nullptr;
  return result;
}

void simulated_device::check_entered() const {
  if (entered() != this)
    throw simulation_error("a thread uses a device that it has not entered");
}

/// Checks that are common to calls that allocate or release memory.
void simulated_device::check_host_call() const {
  check_entered();
  streams_.check_not_recorded();
}

void* simulated_device::allocate(std::size_t bytes) {
  check_host_call();
  if (bytes > largest_allocation)
    throw cuda::device_error(
      cuda::out_of_memory(name(), bytes, largest_allocation, largest_allocation));
  ++allocations_;
  allocated_bytes_ += bytes;
  return allocate_simulated(bytes);
}

void simulated_device::prepare_products(bool with_epilogues) {
  if (!std::exchange(prepared_, true))
    allocated_bytes_ += cuda::product_space_bytes;
  if (with_epilogues && !std::exchange(prepared_epilogues_, true))
    allocated_bytes_ += cuda::product_space_bytes;
}

void simulated_device::release(void* memory) noexcept {
  or_abort([&] {
    check_host_call();
    streams_.drain();
    free_simulated(memory);
  });
}

void* simulated_device::allocate_pinned(std::size_t bytes) {
  check_host_call();
  ++allocations_;
  pinned_bytes_ += bytes;
  std::vector<std::byte> memory(bytes, std::byte{0xa5});
  auto* const result = memory.data();
  pinned_.emplace(result, std::move(memory));
  auto& all = everywhere();
  const std::lock_guard guard{all.mutex};
  all.ranges.emplace(result, bytes);
  return result;
}

void simulated_device::release_pinned(void* memory) noexcept {
  or_abort([&] {
    check_host_call();
    const auto found = pinned_.find(static_cast<std::byte*>(memory));
    if (found == pinned_.end())
      throw simulation_error("pinned memory is freed that was not allocated");
    streams_.check_free(memory, found->second.size());
    auto& all = everywhere();
    const std::lock_guard guard{all.mutex};
    all.ranges.erase(found->first);
    pinned_.erase(found);
  });
}

bool simulated_device::is_pinned(const void* memory, std::size_t bytes) const {
  auto& all = everywhere();
  const std::lock_guard guard{all.mutex};
  return lies_in(all.ranges, memory, bytes);
}

bool simulated_device::has_pinned(const void* memory, std::size_t bytes) const {
  std::map<const std::byte*, std::size_t> own;
  for (const auto& [begin, x] : pinned_)
    own.emplace(begin, x.size());
  return lies_in(own, memory, bytes);
}

void simulated_device::copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) {
  const auto check = [to, bytes] { mark_written(to, bytes); };
  uploaded_ += where.handle == uploads_.handle ? 1 : 0;
  if (where.handle != nullptr && is_pinned(from, bytes)) {
    streams_.copy_in(stream_of(where), to, from, bytes, check);
    return;
  }
  ++waits_;
  if (reads_late) {
    submit(where, [to, from, bytes, check] {
      check();
      std::memcpy(to, from, bytes);
    });
    return;
  }
  const auto* const first = static_cast<const std::byte*>(from);
  submit(where, [to, check, source = std::vector(first, first + bytes)] {
    check();
    std::memcpy(to, source.data(), source.size());
  });
}

void simulated_device::copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) {
  const auto check = [from, bytes] { check_written(from, bytes); };
  if (where.handle != nullptr && is_pinned(to, bytes)) {
    streams_.copy_out(stream_of(where), to, from, bytes, check);
    return;
  }
  submit(where, [to, from, bytes, check] {
    check();
    std::memcpy(to, from, bytes);
  });
  synchronize(where);
}

void simulated_device::copy_inside(cuda::stream where, void* to, const void* from,
                                   std::size_t bytes) {
  submit(where, [to, from, bytes] {
    check_written(from, bytes);
    mark_written(to, bytes);
    std::memcpy(to, from, bytes);
  });
}

bool simulated_device::reach(std::size_t other) {
  if (other != gpu && !has_peers)
    return false;
  reached_.insert(other);
  return true;
}

void simulated_device::copy_from(cuda::stream where, void* to, std::size_t other, const void* from,
                                 std::size_t bytes) {
  if (!reached_.contains(other))
    throw simulation_error("a copy from a GPU whose memory this one cannot access");
  copy_inside(where, to, from, bytes);
}

void simulated_device::synchronize(cuda::stream where) {
  ++waits_;
  if (where.handle != nullptr)
    streams_.synchronize(stream_of(where));
}

std::unique_ptr<cuda::event> simulated_device::make_event() {
  struct simulated_event final : cuda::event {
    simulated_event(simulated_streams& all, std::size_t& waits) : streams(&all), count(&waits) {}

    void record(cuda::stream where) override { streams->record(stream_of(where), mark); }
    /// The stream may belong to another device.
    void hold(cuda::stream where) override { stream_of(where).owner->hold(stream_of(where), mark); }
    void wait() override {
      ++*count;
      streams->wait(*mark);
    }

    simulated_streams* streams;
    std::size_t* count;
    std::shared_ptr<stream_mark> mark = std::make_shared<stream_mark>();
  };
  check_entered();
  return std::make_unique<simulated_event>(streams_, waits_);
}

std::unique_ptr<cuda::time_mark> simulated_device::make_time_mark() {
  struct simulated_time final : cuda::time_mark {
    simulated_time(simulated_streams& all, std::size_t& waits) : streams(&all), count(&waits) {}

    void record(cuda::stream where) override {
      streams->record_time(stream_of(where), time);
      streams->record(stream_of(where), mark);
    }
    double seconds_since(const cuda::time_mark& begin) override {
      const auto& first = static_cast<const simulated_time&>(begin);
      ++*count;
      streams->wait(*first.mark);
      streams->wait(*mark);
      return 1e-6 * static_cast<double>(*time - *first.time);
    }

    simulated_streams* streams;
    std::size_t* count;
    std::shared_ptr<std::uint64_t> time = std::make_shared<std::uint64_t>();
    std::shared_ptr<stream_mark> mark = std::make_shared<stream_mark>();
  };
  check_entered();
  return std::make_unique<simulated_time>(streams_, waits_);
}

namespace {

/// The element (row, column) of a column-major matrix lies at row + column * lead.
struct strided_matrix {
  const cuda::gemm_call::matrix& x;
  std::size_t rows, columns; // in memory, before a transposition

  /// The number of elements from the first to the last element of a batch.
  std::size_t reach(std::size_t batch) const {
    return (batch - 1) * static_cast<std::size_t>(x.stride)
      + (columns - 1) * static_cast<std::size_t>(x.lead) + rows;
  }
};

strided_matrix stored(const cuda::gemm_call::matrix& x, int rows, int columns) {
  return {x, static_cast<std::size_t>(x.transposed ? columns : rows),
          static_cast<std::size_t>(x.transposed ? rows : columns)};
}

/// Checks the rules of cublasGemmStridedBatchedEx.
void check_gemm(const cuda::product& types, const cuda::gemm_call& x) {
  const auto require = [](bool holds, const char* what) {
    if (!holds)
      throw simulation_error(std::string("a product that cuBLAS refuses: ") + what);
  };
  require(x.m >= 0 && x.n >= 0 && x.k >= 0 && x.batch >= 0, "an extent is negative");
  require(x.a.lead >= std::max(1, x.a.transposed ? x.k : x.m), "the distance of columns of a");
  require(x.b.lead >= std::max(1, x.b.transposed ? x.n : x.k), "the distance of columns of b");
  require(x.c_lead >= std::max(1, x.m), "the distance of columns of c");
  require(types.result == types.operands || types.result == dtype::float32, "the types");
  require(types.operands == dtype::float32 || is_narrow(types.operands), "the type of operands");
  const auto aligned = [](const void* memory, dtype type) {
    return reinterpret_cast<std::uintptr_t>(memory) % size_of(type) == 0;
  };
  require(aligned(x.a.data, types.operands) && aligned(x.b.data, types.operands)
            && aligned(x.c, types.result),
          "an address that is not a multiple of the size of an element");
}

/// Rounds to 10 bits of precision. Ties go to the even number.
float to_tf32(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isfinite(x))
    bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~std::uint32_t{0x1fff};
  return std::bit_cast<float>(bits);
}

/// Checks that the elements of all matrices of a batch were written. There may be gaps between
/// their columns.
void check_matrices(dtype type, const strided_matrix& x, std::size_t batch) {
  for (std::size_t i = 0; i < batch; ++i)
    for (std::size_t column = 0; column < x.columns; ++column)
      check_written(
        static_cast<const std::byte*>(x.x.data)
          + (i * static_cast<std::size_t>(x.x.stride) + column * static_cast<std::size_t>(x.x.lead))
            * size_of(type),
        x.rows * size_of(type));
}

std::vector<float> in_float(dtype type, std::size_t n, const void* from, bool tf32) {
  std::vector<float> result(n);
  if (is_narrow(type))
    cpu::widen(type, n, from, result.data());
  else
    std::copy_n(static_cast<const float*>(from), n, result.begin());
  if (tf32 && type == dtype::float32)
    std::ranges::transform(result, result.begin(), to_tf32);
  return result;
}

/// Applies the epilogue to column number `column` of the column-major result. The bias has one
/// value per element of the column.
void apply_epilogue(const cuda::product& types, const std::vector<float>& bias, std::size_t column,
                    std::vector<float>& values) {
  if (types.addend != nullptr) {
    const auto bytes = values.size() * size_of(types.result);
    const auto* const from = static_cast<const std::byte*>(types.addend) + column * bytes;
    check_written(from, bytes);
    const auto addend = in_float(types.result, values.size(), from, false);
    std::ranges::transform(values, addend, values.begin(), std::plus{});
  }
  if (types.bias != nullptr)
    std::ranges::transform(values, bias, values.begin(), std::plus{});
  if (types.after == operation::relu)
    std::ranges::transform(values, values.begin(), cpu::relu<float>);
}

} // namespace

void run_gemm(const cuda::product& types, const cuda::gemm_call& x) {
  check_gemm(types, x);
  if (x.m == 0 || x.n == 0 || x.batch == 0 || x.k == 0)
    return;
  const auto number = [](auto y) { return static_cast<std::size_t>(y); };
  const auto m = number(x.m);
  const auto n = number(x.n);
  const auto k = number(x.k);
  const auto batch = number(x.batch);
  const auto a = stored(x.a, x.m, x.k);
  const auto b = stored(x.b, x.k, x.n);
  check_matrices(types.operands, a, batch);
  check_matrices(types.operands, b, batch);
  const auto as = in_float(types.operands, a.reach(batch), x.a.data, types.tf32);
  const auto bs = in_float(types.operands, b.reach(batch), x.b.data, types.tf32);
  const auto scratch = make_aligned<float>(cpu::gemm_scratch_elements<float>());
  // A column-major matrix is the transpose of a row-major one.
  const auto view_of = [&](const strided_matrix& y, const std::vector<float>& values,
                           std::size_t i) {
    const cpu::matrix<float> stored_rows{values.data() + i * number(y.x.stride), number(y.x.lead),
                                         1};
    return y.x.transposed ? stored_rows : stored_rows.transposed();
  };
  if (types.bias != nullptr)
    check_written(types.bias, m * size_of(types.result));
  const auto bias =
    types.bias == nullptr ? std::vector<float>(m) : in_float(types.result, m, types.bias, false);
  std::vector<float> rows(m * n);
  for (std::size_t i = 0; i < batch; ++i) {
    cpu::gemm<float>(m, n, k, view_of(a, as, i), view_of(b, bs, i), rows.data(), n, scratch.get());
    for (std::size_t column = 0; column < n; ++column) {
      std::vector<float> values(m);
      for (std::size_t row = 0; row < m; ++row)
        values[row] = rows[row * n + column];
      apply_epilogue(types, bias, column, values);
      auto* const to = static_cast<std::byte*>(x.c)
        + (i * number(x.c_stride) + column * number(x.c_lead)) * size_of(types.result);
      mark_written(to, m * size_of(types.result));
      if (is_narrow(types.result))
        cpu::narrow(types.result, m, values.data(), to);
      else
        std::memcpy(to, values.data(), m * sizeof(float));
    }
  }
}

bool simulated_device::fuses(const cuda::product& x) {
  if (!cuda::has_epilogue(x))
    return false;
  if (recording_ && !prepared_epilogues_)
    throw simulation_error("an epilogue is recorded, and prepare_products was not called with it");
  prepared_epilogues_ = true;
  return has_epilogues;
}

void simulated_device::multiply(cuda::stream where, const cuda::product& x) {
  if (x.ends()) {
    if (!fuses(x))
      throw simulation_error("a product with an epilogue that the device does not have");
    ++epilogues_;
  } else {
    if (recording_ && !prepared_)
      throw simulation_error("a product is recorded, and prepare_products was not called");
    prepared_ = true;
  }
  const auto call = cuda::gemm_of(x);
  submit(where, [x, call] {
    run_gemm(x, call);
    if (x.k == 0) { // a real device writes 0, too
      const auto bytes = x.batch * x.m * x.n * size_of(x.result);
      mark_written(x.c, bytes);
      std::memset(x.c, 0, bytes);
    }
  });
}

void simulated_device::begin_recording(cuda::stream where) {
  check_entered();
  ++recordings_;
  streams_.begin_recording(stream_of(where));
  recording_ = true;
}

std::unique_ptr<cuda::recording> simulated_device::end_recording(cuda::stream where) {
  struct kept final : cuda::recording {
    std::vector<std::function<void()>> work;
    std::size_t* count = nullptr;
    std::size_t* all = nullptr;
    void replay(cuda::stream on) override {
      ++*count;
      *all += work.size();
      for (const auto& x : work)
        submit(on, x);
    }
  };
  recording_ = false;
  auto result = std::make_unique<kept>();
  result->work = streams_.end_recording(stream_of(where));
  result->count = &replays_;
  result->all = &replayed_;
  return result;
}

} // namespace troupe::test
