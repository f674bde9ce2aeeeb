// A worker on a GPU reads the features of large batches into pinned memory.

#include "actors/worker/pinned_pool.hpp"
#include "actors/worker/task_device.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/devices/device_error.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(pinned_batches)

namespace {

/// Memory of the heap that counts as pinned.
class counted_memory final : public pinned_memory {
public:
  explicit counted_memory(std::size_t most) : left_(most) {}
  ~counted_memory() override { BOOST_TEST(held_.empty()); }

  void* allocate(std::size_t bytes) override {
    if (left_ == 0)
      throw device_error("no more pinned memory");
    --left_;
    ++allocations;
    return *held_.insert(::operator new(bytes)).first;
  }
  void release(void* memory) noexcept override {
    BOOST_TEST(held_.erase(memory) == 1U);
    ::operator delete(memory);
  }

  std::size_t allocations = 0;

private:
  std::size_t left_;
  std::set<void*> held_;
};

/// 48 digits in batches of 24: 75,264 bytes of features.
proto::Job large_batches(const std::vector<std::string>& more) {
  std::vector<std::string> changes{"data.digits={train: 48 test: 8}", "data.batch=24", on_gpu};
  changes.insert(changes.end(), more.begin(), more.end());
  return job_with(mlp, changes);
}

} // namespace

BOOST_AUTO_TEST_CASE(buffers_are_used_again) {
  const auto memory = std::make_shared<counted_memory>(8);
  const auto pool = std::make_shared<pinned_pool>(memory, 100);
  const std::byte* first = nullptr;
  {
    const auto a = pool->take(100);
    const auto b = pool->take(1);
    BOOST_TEST(a.size() == 100U);
    BOOST_TEST(b.size() == 1U);
    BOOST_TEST(a.data() != b.data());
    BOOST_TEST(a.unique());
    first = b.data();
    const auto copy = b; // NOLINT: keeps the buffer
    BOOST_TEST(!b.unique());
  }
  std::set<const std::byte*> again;
  for (int i = 0; i < 3; ++i) {
    const auto a = pool->take(50);
    const auto b = pool->take(60);
    again.insert({a.data(), b.data()});
  }
  BOOST_TEST(again.size() == 2U);
  BOOST_TEST(again.contains(first));
  BOOST_TEST(memory->allocations == 2U);
  BOOST_CHECK_THROW(pool->take(101), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(payloads_outlive_the_pool) {
  auto memory = std::make_shared<counted_memory>(8);
  const std::weak_ptr<counted_memory> watch = memory;
  std::vector<payload> held;
  {
    const auto pool = std::make_shared<pinned_pool>(std::move(memory), 64);
    for (int i = 0; i < 3; ++i)
      held.push_back(pool->take(64));
    const auto released = pool->take(64);
  }
  for (auto& x : held)
    x.as_mutable_floats()[15] = 1;
  held.resize(1);
  BOOST_TEST(!watch.expired());
  held.clear();
  BOOST_TEST(watch.expired());
}

BOOST_AUTO_TEST_CASE(other_memory_if_there_is_no_more) {
  const auto memory = std::make_shared<counted_memory>(1);
  const auto pool = std::make_shared<pinned_pool>(memory, 64);
  auto first = std::make_optional(pool->take(64));
  auto second = pool->take(32);
  BOOST_TEST(second.size() == 32U);
  second.as_mutable_floats()[7] = 1;
  const auto* const place = first->data();
  first.reset();
  BOOST_TEST(pool->take(8).data() == place);
  BOOST_TEST(memory->allocations == 1U);
}

// Each of the two workers trains a batch of 24 samples in each of two epochs. So the features of
// four batches are copied directly. The labels of a batch have too few bytes for that.
BOOST_AUTO_TEST_CASE(large_batches_are_copied_directly) {
  for (const std::string protocol : {"RING", "SYNC_PS"})
    for (const std::string more : {"precision=FLOAT32", "precision=FLOAT16", "data.prefetch=3"})
      BOOST_TEST(traffic_of(large_batches({"protocol=" + protocol, more}), 2).direct == 4U,
                 protocol << ", " << more);
  BOOST_TEST(traffic_of(large_batches({"protocol=RING", "data.batch=20"}), 2).direct == 0U);
}

// Reading into pinned memory does not change the weights. The simulated GPU would report an error
// if memory were written or freed while it is still being copied.
BOOST_AUTO_TEST_CASE(the_results_are_the_same) {
  for (const std::string protocol : {"RING", "ASYNC_PS"})
    for (const std::string more : {"accumulate=1", "accumulate=2", "data.read_threads=3"}) {
      const auto job = large_batches({"protocol=" + protocol, more, "epochs=4"});
      auto cpu = job;
      cpu.clear_device();
      const auto expected = train(cpu, 1, nullptr);
      for (const std::uint64_t order : {1, 2, 3, 4}) {
        const auto gpu = train(job, 1, gpus(1, {.order = order}), order);
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(distance(gpu.weights, expected.weights) <= 1e-5);
      }
    }
}

BOOST_AUTO_TEST_CASE(the_memory_is_estimated) {
  const task_name worker{job_kind::worker, 0};
  const auto pinned = [&](const std::vector<std::string>& more) {
    return device_memory(*context_of(large_batches(more)), worker, 1, 1, gpus(1).get()).pinned;
  };
  const std::size_t batch = 24 * 784 * sizeof(float);
  BOOST_TEST(pinned({"data.prefetch=4"}) == pinned({"data.prefetch=1"}) + 3 * batch);
  BOOST_TEST(pinned({"data.prefetch=1", "accumulate=2"}) >= pinned({}) + 3 * batch);
}

BOOST_AUTO_TEST_SUITE_END()
