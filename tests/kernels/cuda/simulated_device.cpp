#include "tests/kernels/cuda/simulated_device.hpp"

#include "kernels/cpu/conversions.hpp"
#include "kernels/cpu/executor_state.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/math.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>

namespace troupe::test {

namespace {

/// For functions that may not throw.
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

} // namespace

simulated_device::simulated_device(std::optional<std::uint64_t> seed) : streams_(3, seed) {}

void* simulated_device::allocate(std::size_t bytes) {
  if (bytes > largest_allocation)
    throw cuda::device_error("out of memory of the simulated device: " + std::to_string(bytes)
                             + " bytes are needed at once");
  ++allocations_;
  allocated_bytes_ += bytes;
  return allocate_simulated(bytes);
}

void simulated_device::release(void* memory) noexcept {
  or_abort([&] {
    streams_.drain();
    free_simulated(memory);
  });
}

void* simulated_device::allocate_pinned(std::size_t bytes) {
  ++allocations_;
  pinned_bytes_ += bytes;
  std::vector<std::byte> memory(bytes, std::byte{0xa5});
  auto* const result = memory.data();
  pinned_.emplace(result, std::move(memory));
  return result;
}

void simulated_device::release_pinned(void* memory) noexcept {
  or_abort([&] {
    const auto found = pinned_.find(static_cast<std::byte*>(memory));
    if (found == pinned_.end())
      throw simulation_error("pinned memory is freed that was not allocated");
    streams_.check_free(memory, found->second.size());
    pinned_.erase(found);
  });
}

bool simulated_device::is_pinned(const void* memory, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(memory);
  const auto after = pinned_.upper_bound(first);
  if (after == pinned_.begin())
    return false;
  const auto& [begin, x] = *std::prev(after);
  return first + bytes <= begin + x.size();
}

void simulated_device::copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) {
  const auto check = [to, bytes] { mark_written(to, bytes); };
  uploaded_ += where.handle == uploads_.handle ? 1 : 0;
  if (where.handle != nullptr && is_pinned(from, bytes)) {
    streams_.copy_in(stream_of(where), to, from, bytes, check);
    return;
  }
  ++waits_;
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

void simulated_device::synchronize(cuda::stream where) {
  ++waits_;
  if (where.handle != nullptr)
    streams_.synchronize(stream_of(where));
}

std::unique_ptr<cuda::event> simulated_device::make_event() {
  struct simulated_event final : cuda::event {
    simulated_event(simulated_streams& all, std::size_t& waits) : streams(&all), count(&waits) {}

    void record(cuda::stream where) override { streams->record(stream_of(where), mark); }
    void hold(cuda::stream where) override { streams->hold(stream_of(where), mark); }
    void wait() override {
      ++*count;
      streams->wait(*mark);
    }

    simulated_streams* streams;
    std::size_t* count;
    std::shared_ptr<stream_mark> mark = std::make_shared<stream_mark>();
  };
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
  return std::make_unique<simulated_time>(streams_, waits_);
}

namespace {

std::vector<float> in_float(dtype type, std::size_t n, const void* from) {
  check_written(from, n * size_of(type));
  std::vector<float> result(n);
  if (is_narrow(type))
    cpu::widen(type, n, from, result.data());
  else
    std::copy_n(static_cast<const float*>(from), n, result.begin());
  return result;
}

void multiply_now(const cuda::product& x) {
  const auto scratch = make_aligned<float>(cpu::gemm_scratch_elements<float>());
  const auto as = in_float(x.operands, x.batch * x.m * x.k, x.a);
  const auto bs = in_float(x.operands, x.batch * x.k * x.n, x.b);
  std::vector<float> cs(x.batch * x.m * x.n);
  for (std::size_t i = 0; i < x.batch; ++i) {
    cpu::matrix<float> a{as.data() + i * x.m * x.k, x.transpose_a ? x.m : x.k, 1};
    cpu::matrix<float> b{bs.data() + i * x.k * x.n, x.transpose_b ? x.k : x.n, 1};
    cpu::gemm<float>(x.m, x.n, x.k, x.transpose_a ? a.transposed() : a,
                     x.transpose_b ? b.transposed() : b, cs.data() + i * x.m * x.n, x.n,
                     scratch.get());
  }
  if (x.bias != nullptr) {
    const auto bias = in_float(x.result, x.n, x.bias);
    for (std::size_t i = 0; i < cs.size(); ++i)
      cs[i] += bias[i % x.n];
  }
  if (x.after == operation::relu)
    std::ranges::transform(cs, cs.begin(), cpu::relu<float>);
  mark_written(x.c, cs.size() * size_of(x.result));
  if (is_narrow(x.result))
    cpu::narrow(x.result, cs.size(), cs.data(), x.c);
  else
    std::ranges::copy(cs, static_cast<float*>(x.c));
}

} // namespace

void simulated_device::multiply(cuda::stream where, const cuda::product& x) {
  if (x.bias != nullptr || x.after != operation::end) {
    if (!fuses(x))
      throw simulation_error("a product with an epilogue that the device does not have");
    ++epilogues_;
  }
  submit(where, [x] { multiply_now(x); });
}

void simulated_device::begin_recording(cuda::stream where) {
  ++recordings_;
  streams_.begin_recording(stream_of(where));
}

std::unique_ptr<cuda::recording> simulated_device::end_recording(cuda::stream where) {
  struct kept final : cuda::recording {
    std::vector<std::function<void()>> work;
    std::size_t* count = nullptr;
    void replay(cuda::stream on) override {
      ++*count;
      for (const auto& x : work)
        submit(on, x);
    }
  };
  auto result = std::make_unique<kept>();
  result->work = streams_.end_recording(stream_of(where));
  result->count = &replays_;
  return result;
}

} // namespace troupe::test
