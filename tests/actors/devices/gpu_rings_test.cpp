// Workers of a ring that are in one process. They add up their gradients on their simulated GPUs.

#include "actors/checkpoint/resume.hpp"
#include "actors/cluster/footprint.hpp"
#include "actors/model/replica_state.hpp"
#include "actors/simulation/simulation.hpp"
#include "actors/worker/task_device.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/spoilt.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(gpu_rings)

namespace {

using fields = std::vector<std::string>;

const fields ring{"protocol=RING", on_gpu};
/// Places worker 1 on another GPU than worker 0.
const std::string second_gpu = "device[1]=/job:worker/task:1/device:GPU:1";

fields operator+(fields a, const fields& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const fields momentum{"optimizer={ kind: MOMENTUM momentum: 0.9 weight_decay: 0.01 }"};
const fields adam{"optimizer={ kind: ADAM }", "learning_rate={base: 0.01}"};

bool mentions(const std::vector<std::string>& notices, const std::string& text) {
  return std::ranges::any_of(notices, [&](auto& x) { return contains(x, text); });
}

const std::string by_host = "the workers add up their gradients in the host's memory: ";

} // namespace

BOOST_AUTO_TEST_CASE(what_stays_on_the_gpus_of_a_ring) {
  const auto adds = [](const fields& more, std::size_t workers) {
    return adds_on_gpus(*context_of(job_with(mlp, more)), workers);
  };
  BOOST_TEST(adds(ring, 2));
  BOOST_TEST(!adds(ring, 1));
  BOOST_TEST(!adds({"protocol=LOCAL_SGD"}, 2));
  BOOST_TEST(!adds({"protocol=SYNC_PS"}, 2));
  BOOST_TEST(adds(ring + fields{"accumulate=2"}, 2));
  BOOST_TEST(adds(ring + fields{"precision=FLOAT16"}, 2));
  BOOST_TEST(!adds(ring + fields{"exchange_precision=BFLOAT16"}, 2));
  BOOST_TEST(adds(ring + fields{"precision=BFLOAT16"}, 2));
  BOOST_TEST(adds(ring + fields{"optimizer.clip_norm=1"}, 2));
  BOOST_TEST(!adds(ring + fields{"ring.shard_optimizer=true"}, 2));
}

// Compares sums on GPUs with sums on the host, which a run with one process per worker uses. The
// cnn model has layers with statistics. The last gradients of some workers have no samples.
BOOST_AUTO_TEST_CASE(sums_on_gpus_have_the_bits_of_those_on_the_host) {
  for (const auto& model : {mlp, cnn, normalized_together})
    for (const auto& rule : {momentum, adam, adam + fields{"accumulate=2"}})
      for (const std::size_t workers : {2, 3, 4})
        for (const bool apart : {false, true})
          BOOST_TEST_CONTEXT(workers << " workers, two GPUs: " << apart << ", " << model) {
            const auto how = ring + rule + (apart ? fields{second_gpu} : fields{});
            const auto job = job_with(model, how);
            const auto host = train(job, workers, gpus(2));
            const auto device = train_together(job, workers, gpus(2));
            BOOST_TEST(host.summary.failure == "");
            BOOST_TEST(device.summary.failure == "");
            BOOST_TEST(device.notices.empty());
            BOOST_TEST(device.summary.samples == 48U);
            BOOST_TEST(device.summary.weights_sha256 == host.summary.weights_sha256);
          }
}

// The first gradients of a run overflow in float16, so the scale becomes smaller, and the batches
// are computed again.
BOOST_AUTO_TEST_CASE(gpus_remove_the_loss_scale) {
  for (const auto& model : {mlp, cnn})
    for (const std::string more : {"accumulate=1", "accumulate=2"})
      BOOST_TEST_CONTEXT(model << ", " << more) {
        const auto how = ring + momentum
          + fields{more, "precision=FLOAT16", "loss_scale={initial: 1099511627776}"};
        const auto host = train(job_with(model, how), 2, gpus(1));
        const auto device = train_together(job_with(model, how), 2, gpus(1));
        BOOST_TEST(host.summary.failure == "");
        BOOST_TEST(device.summary.failure == "");
        BOOST_TEST(device.summary.samples == 48U);
        BOOST_TEST(device.summary.weights_sha256 == host.summary.weights_sha256);
      }
}

// GPUs add up the squares of a norm in another order than the host, so the last bits of the clipped
// gradient may differ.
BOOST_AUTO_TEST_CASE(sums_on_gpus_are_clipped_by_their_norm) {
  for (const auto& model : {mlp, cnn})
    for (const std::size_t workers : {2, 3})
      for (const std::string more : {"accumulate=1", "accumulate=2"})
        BOOST_TEST_CONTEXT(workers << " workers, " << model << ", " << more) {
          const auto how = ring + momentum + fields{more};
          const auto clipped = how + fields{"optimizer.clip_norm=0.3"};
          const auto host = train(job_with(model, clipped), workers, gpus(1));
          const auto device = train_together(job_with(model, clipped), workers, gpus(1));
          BOOST_TEST(device.summary.failure == "");
          BOOST_TEST(distance(host.weights, device.weights) <= 1e-6);
          const auto whole = train_together(job_with(model, how), workers, gpus(1));
          BOOST_TEST(distance(whole.weights, device.weights) > 1e-3);
        }
}

BOOST_AUTO_TEST_CASE(sums_on_gpus_do_not_depend_on_the_order_of_streams) {
  const auto job = job_with(cnn, ring + adam + fields{second_gpu, "ring.verify_every_steps=2"});
  const auto first = train_together(job, 3, gpus(2, {.order = std::nullopt}));
  BOOST_TEST(first.summary.failure == "");
  for (const std::uint64_t seed : {2, 4, 5})
    BOOST_TEST(train_together(job, 3, gpus(2, {.order = seed}), seed).summary.weights_sha256
               == first.summary.weights_sha256);
}

BOOST_AUTO_TEST_CASE(gpus_that_cannot_access_each_other) {
  const auto job = job_with(mlp, ring + momentum + fields{second_gpu});
  const auto run = train_together(job, 2, gpus(2, {.no_peers = true}));
  BOOST_TEST(run.summary.failure == "");
  BOOST_TEST(run.summary.weights_sha256 == train_together(job, 2, gpus(2)).summary.weights_sha256);
  BOOST_TEST(mentions(run.notices,
                      by_host
                        + "the GPU simulated (number 0) cannot access the memory "
                          "of GPU number 1"));
  // Two workers on the same GPU need no access to another GPU, so there is no notice.
  const auto shared = job_with(mlp, ring + momentum);
  BOOST_TEST(train_together(shared, 2, gpus(1, {.no_peers = true})).notices.empty());
  // If a worker is on the CPU or in another process, sums on the host are expected. So there is no
  // notice.
  const auto mixed =
    job_with(mlp, ring + momentum + fields{"device[1]=/job:worker/task:1/device:CPU:0"});
  BOOST_TEST(train_together(mixed, 2, gpus(2)).summary.failure == "");
  BOOST_TEST(train_together(mixed, 2, gpus(2)).notices.empty());
  BOOST_TEST(train(job, 2, gpus(2, {.no_peers = true})).notices.empty());
}

// Counts the bytes that are copied between host and GPU in six steps of two workers. A step copies
// only batches, losses and norms.
BOOST_AUTO_TEST_CASE(what_steps_of_a_ring_copy) {
  const auto weights = context_of(job_with(mlp, ring))->parameters().size() * sizeof(float);
  for (const std::string more : {"accumulate=1", "accumulate=2", "optimizer.clip_norm=0.3"}) {
    const auto of = [&](const std::string& batch) {
      return traffic_of(job_with(mlp, ring + fields{"epochs=2", "data.batch=" + batch, more}), 2,
                        true);
    };
    const auto many = of("2");
    const auto few = of("4");
    BOOST_TEST(many.in - few.in < weights);
    BOOST_TEST(many.out - few.out < weights);
  }
}

// A ring in one process writes checkpoints. From each of them, another run continues: in one
// process, or in several.
BOOST_AUTO_TEST_CASE(a_ring_on_gpus_continues_from_a_checkpoint) {
  const auto job = job_with(cnn, ring + adam + fields{"checkpoint={every_steps: 3 keep: 100}"});
  simulation_options options;
  options.job = job;
  options.data = build_data(job);
  options.workers = 3;
  options.ps = 0;
  options.one_node = true;
  options.gpus = gpus(1);
  options.files = std::make_shared<memory_storage>();
  const auto whole = simulation{options}.run().summary;
  BOOST_TEST_REQUIRE(whole.failure == "");
  const auto names = options.files->directories(checkpoint_folder("out"));
  BOOST_TEST(names.size() >= 1U);
  for (const auto& name : names)
    for (const bool one_node : {true, false}) {
      auto again = options;
      again.one_node = one_node;
      again.resume = load(*options.files, job, name);
      again.files = std::make_shared<memory_storage>();
      const auto rest = simulation{again}.run().summary;
      BOOST_TEST(rest.failure == "");
      BOOST_TEST(rest.weights_sha256 == whole.weights_sha256, name);
    }
}

// A gradient that is left out changes nothing, and the messages about it are the same as on the
// CPU.
BOOST_AUTO_TEST_CASE(gradients_of_a_ring_that_are_left_out) {
  for (const std::size_t workers : {2, 3}) {
    for (const std::string more : {"accumulate=1", "accumulate=2"}) {
      const fields how{"protocol=RING", "learning_rate={base: 1e30}", "max_bad=2", more};
      const auto cpu = train_together(job_with(mlp, how), workers, nullptr);
      const auto gpu = train_together(job_with(mlp, how + fields{on_gpu}), workers, gpus(1));
      BOOST_TEST(gpu.summary.not_finite);
      BOOST_TEST(gpu.summary.failure == cpu.summary.failure);
    }
  }
}

// The batch of one worker has a feature that is not finite. All workers leave out the gradient of
// this worker.
BOOST_AUTO_TEST_CASE(a_gradient_of_a_ring_that_is_left_out) {
  for (const auto& rule : {adam, adam + fields{"accumulate=2"}})
    for (const std::size_t workers : {2, 3}) {
      simulation_options options;
      options.job = job_with(cnn, ring + rule);
      options.data = build_data(options.job);
      options.data.train = std::make_shared<spoilt>(options.data.train, 7);
      options.workers = workers;
      options.ps = 0;
      options.gpus = gpus(1);
      const auto host = simulate(options).summary;
      options.one_node = true;
      const auto device = simulate(options).summary;
      BOOST_TEST(device.failure == "");
      BOOST_TEST(device.quarantined == 2 * workers);
      BOOST_TEST(host.quarantined == 2 * workers);
      BOOST_TEST(device.weights_sha256 == host.weights_sha256);
    }
}

// A worker of a ring whose workers are in one process keeps the sum of the gradients in the memory
// of its GPU. It needs no gradient in the memory of the host.
BOOST_AUTO_TEST_CASE(memory_of_a_ring_on_gpus) {
  const auto context = context_of(job_with(mlp, ring + adam));
  const auto devices = gpus(1);
  const task_name worker{job_kind::worker, 0};
  const auto vector = context->parameters().size() * sizeof(float);
  const auto by_the_host = device_memory(*context, worker, 2, 0, devices.get());
  const auto together = device_memory(*context, worker, 2, 0, devices.get(), true);
  BOOST_TEST(together.device >= by_the_host.device);
  BOOST_TEST(together.device < by_the_host.device + vector / 2);
  BOOST_TEST(together.pinned / vector + 1 == by_the_host.pinned / vector);
  const auto sums = context_of(job_with(mlp, ring + adam + fields{"accumulate=2"}));
  BOOST_TEST(device_memory(*sums, worker, 2, 0, devices.get(), true).device
             == together.device + vector);
  cluster_shape shape;
  shape.workers = 2;
  BOOST_TEST(adds_on_gpus(*context, shape));
  BOOST_TEST(footprint_of(worker, *context, {}, shape).gradients == 0U);
  shape.separate = true;
  BOOST_TEST(!adds_on_gpus(*context, shape));
  BOOST_TEST(footprint_of(worker, *context, {}, shape).gradients >= vector);
  shape.separate = false;
  const auto mixed =
    context_of(job_with(mlp, ring + fields{"device[1]=/job:worker/task:1/device:CPU:0"}));
  BOOST_TEST(!adds_on_gpus(*mixed, shape));
}

// In run n, opening a GPU fails the n-th time, until a run opens all of its GPUs. With
// soft_placement, the worker of this GPU computes on the CPU instead, or ends because its replica
// cannot be opened. All ranks agree whether they add up gradients on GPUs.
BOOST_AUTO_TEST_CASE(a_gpu_that_cannot_be_opened) {
  const auto job = job_with(mlp, ring + momentum + fields{"epochs=1", "soft_placement=true"});
  const auto whole = train_together(job, 2, gpus(1)).summary.weights_sha256;
  std::size_t fallbacks = 0;
  std::size_t n = 0;
  for (;; ++n) {
    const auto run = train_together(job, 2, gpus(1, {.opens = n}));
    const auto& failure = run.summary.failure;
    if (failure.empty() && run.notices.empty())
      break;
    BOOST_TEST_REQUIRE(n < 100U);
    if (failure.empty())
      ++fallbacks;
    else
      BOOST_TEST(contains(failure, "the GPU does not answer"), failure);
  }
  BOOST_TEST(n >= 5U);
  BOOST_TEST(fallbacks >= 2U);
  BOOST_TEST(train_together(job, 2, gpus(1, {.opens = n})).summary.weights_sha256 == whole);
}

// Allocation N, or copy N to the host, fails, for N = 0, 1, 2, ... until a run has no failure.
BOOST_AUTO_TEST_CASE(a_gpu_of_a_ring_that_fails) {
  const auto job = job_with(mlp, ring + momentum + fields{"epochs=1"});
  const auto failures = [&](std::size_t step, const std::string& what, auto faults_at) {
    std::size_t result = 0;
    for (std::size_t n = 0;; n += step, ++result) {
      const auto failure = train_together(job, 2, gpus(1, faults_at(n))).summary.failure;
      if (failure.empty())
        return result;
      BOOST_TEST(failure.starts_with("worker/"), failure);
      BOOST_TEST(contains(failure, " on GPU:0: " + what), failure);
    }
  };
  BOOST_TEST(
    failures(1, "out of memory of the GPU", [](std::size_t n) { return faults{.allocations = n}; })
    >= 10U);
  BOOST_TEST(
    failures(1, "a copy from the GPU failed", [](std::size_t n) { return faults{.copies = n}; })
    >= 5U);
}

BOOST_AUTO_TEST_SUITE_END()
