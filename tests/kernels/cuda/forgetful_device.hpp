#pragma once

#include "kernels/cuda/device.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::test {

/// Counts the waits for events, by a stream or by the host.
struct event_waits {
  /// The number of the wait that is left out. By default, none is left out.
  std::size_t forgotten = ~std::size_t{0};
  /// The number of waits so far, including the wait that was left out.
  std::size_t so_far = 0;
};

/// A device that leaves out one wait for an event. The waits of several devices can be counted
/// together.
class forgetful_device final : public simulated_device {
public:
  forgetful_device(std::uint64_t seed, event_waits& waits)
    : simulated_device(seed), waits_(&waits) {}

  std::unique_ptr<cuda::event> make_event() override {
    struct lost final : cuda::event {
      void record(cuda::stream where) override { inner->record(where); }
      void hold(cuda::stream where) override {
        if (waits->so_far++ != waits->forgotten)
          inner->hold(where);
      }
      void wait() override {
        if (waits->so_far++ != waits->forgotten)
          inner->wait();
      }
      std::unique_ptr<cuda::event> inner;
      event_waits* waits = nullptr;
    };
    auto result = std::make_unique<lost>();
    result->inner = simulated_device::make_event();
    result->waits = waits_;
    return result;
  }
  void release(void* memory) noexcept override { free_simulated(memory); }
  void release_pinned(void*) noexcept override {}

private:
  event_waits* waits_;
};

/// True if the missing wait is noticed: in some order of the streams, the result of run() is wrong,
/// or a fault is found.
/// @param run gets a function that makes a device, and may call it several times
template <class Run, class Same>
bool is_missed(std::size_t forgotten, Run run, Same is_right) {
  constexpr std::uint64_t orders = 100;
  for (std::uint64_t seed = 0; seed < orders; ++seed)
    try {
      event_waits waits{forgotten};
      if (!is_right(run([&] { return std::make_unique<forgetful_device>(seed, waits); })))
        return true;
    } catch (const simulation_error&) {
      return true;
    }
  return false;
}

/// Checks that a run has exactly `count` waits, and that its result is the same as on a device that
/// runs all work when it is submitted. Then leaves out each wait in turn, and checks that some
/// order of the streams shows that it is missing.
/// @param first the number of the first wait that is left out; the run does not need the waits
/// before it
template <class Run, class Same>
void check_all_are_needed(std::size_t count, Run run, Same same, std::size_t first = 0) {
  const auto expected = run([] { return std::make_unique<simulated_device>(); });
  const auto is_right = [&](const auto& x) { return same(x, expected); };
  event_waits waits;
  BOOST_TEST(is_right(run([&] { return std::make_unique<forgetful_device>(0, waits); })));
  BOOST_TEST(waits.so_far == count);
  for (auto i = first; i < count; ++i)
    BOOST_TEST(is_missed(i, run, is_right), "nothing shows that wait " << i << " is missing");
}

} // namespace troupe::test
