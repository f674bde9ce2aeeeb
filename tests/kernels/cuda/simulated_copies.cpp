#include "kernels/cuda/kernel.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

// Asynchronous copies of the simulated GPU. A real copy may write its destination at any time from
// the start of the copy to the end of the wait. So both moments are checked for races, and the
// destination has no useful value between them.

namespace troupe::cuda::simulation {

namespace {

struct copy {
  void* data = nullptr;
  std::size_t i = 0;
  std::size_t size = 0;
  std::size_t element = 0;
  std::array<std::byte, 16> value{};

  std::byte* to() const { return static_cast<std::byte*>(data) + i * element; }
};

/// The copies that each thread of the current block has started and not waited for. Only one block
/// runs at a time.
std::vector<copy>& started() {
  static std::array<std::vector<copy>, block_threads> all;
  return all[here().index];
}

} // namespace

void start_copy(void* data, std::size_t i, std::size_t size, std::size_t element,
                const void* value) {
  check_write(data, i, size, element);
  auto& x = started().emplace_back(copy{data, i, size, element, {}});
  std::copy_n(static_cast<const std::byte*>(value), element, x.value.begin());
  std::fill_n(x.to(), element, std::byte{0xff});
}

void wait_for_copies() {
  for (const auto& x : started()) {
    check_write(x.data, x.i, x.size, x.element);
    std::copy_n(x.value.begin(), x.element, x.to());
  }
  started().clear();
}

/// An error may have ended an earlier thread with this number before it waited.
void begin_thread() {
  started().clear();
}

void end_thread(const char* name) {
  if (!started().empty())
    throw test::simulation_error(
      "kernel " + std::string(name) + ", block " + std::to_string(here().block) + ", thread "
      + std::to_string(here().index) + ": ends without waiting for its copies to shared memory");
}

} // namespace troupe::cuda::simulation
