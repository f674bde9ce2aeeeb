// Workers that keep their replica (the weights and the optimizer's state) on a simulated GPU: RING
// and LOCAL_SGD.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/replica_state.hpp"
#include "actors/simulation/simulation.hpp"
#include "actors/worker/task_device.hpp"
#include "messages/residence.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(gpu_replicas)

namespace {

using fields = std::vector<std::string>;

const fields ring{"protocol=RING"};
const fields local{"protocol=LOCAL_SGD", "local_sgd.every=3"};

fields operator+(fields a, const fields& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const fields momentum{"optimizer={ kind: MOMENTUM momentum: 0.9 weight_decay: 0.01 }"};
const fields adam{"optimizer={ kind: ADAM }", "learning_rate={base: 0.01}"};
const fields clipped{"optimizer={ kind: NESTEROV momentum: 0.9 clip_norm: 0.5 }"};

/// Settings of protocols that keep replicas on a GPU, with different kinds of averages.
const std::vector<fields> protocols{
  ring,
  ring + fields{"accumulate=2"},
  local,
  local + fields{"local_sgd.fragments=2"},
  local + fields{"local_sgd.outer={kind: NESTEROV rate: 0.7 momentum: 0.9}"},
  local + fields{"local_sgd.behind=CONTRIBUTE"},
};

std::string text(const fields& x) {
  std::string result;
  for (const auto& field : x)
    result += field + " ";
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(what_stays_on_a_gpu) {
  const auto of = [](const fields& more, std::size_t workers) {
    return residence_of(*context_of(job_with(mlp, more)), workers);
  };
  const auto host = residence::host;
  const auto weights = residence::weights_on_gpu;
  const auto gradients = residence::gradients_on_gpu;
  BOOST_TEST((of(ring, 1) == gradients));
  BOOST_TEST((of(ring, 2) == weights));
  BOOST_TEST((of(local, 2) == gradients));
  BOOST_TEST((of(local + clipped, 2) == gradients));
  BOOST_TEST((of(ring + clipped, 1) == gradients));
  BOOST_TEST((of(ring + clipped, 2) == weights));
  BOOST_TEST((of(ring + fields{"accumulate=2"}, 1) == gradients));
  BOOST_TEST((of(ring + fields{"precision=FLOAT16"}, 1) == gradients));
  BOOST_TEST((of(ring + fields{"exchange_precision=BFLOAT16"}, 1) == weights));
  BOOST_TEST((of(ring + fields{"precision=BFLOAT16"}, 1) == gradients));
  BOOST_TEST((of(ring + fields{"moving_average={decay: 0.9}"}, 1) == host));
  BOOST_TEST((of(ring + fields{"optimizer={ kind: LAMB }"}, 1) == host));
  BOOST_TEST((of(ring + fields{"ring.shard_optimizer=true"}, 2) == host));
  BOOST_TEST((of({"protocol=SYNC_PS"}, 1) == host));
}

// Compares with the CPU. Tolerance: the weights are at most about 1, and a run has about ten steps.
// The cnn model has layers with statistics.
BOOST_AUTO_TEST_CASE(replicas_on_a_gpu_train_like_those_of_the_cpu) {
  some_cases chosen;
  for (const auto& protocol : protocols)
    for (const auto& rule : {momentum, adam, clipped})
      for (const auto& model : {mlp, cnn})
        for (const std::size_t workers : {1, 2}) {
          if (!chosen())
            continue;
          BOOST_TEST_CONTEXT(text(protocol + rule) << workers << " workers, " << model) {
            const auto how = protocol + rule;
            const auto cpu = train(job_with(model, how), workers, nullptr);
            const auto gpu = train(job_with(model, how + fields{on_gpu}), workers, gpus(1));
            BOOST_TEST(cpu.summary.failure == "");
            BOOST_TEST(gpu.summary.failure == "");
            BOOST_TEST(gpu.summary.samples == 48U);
            BOOST_TEST(distance(cpu.weights, gpu.weights) <= 2e-4);
            BOOST_TEST(cpu.summary.weights_sha256 != gpu.summary.weights_sha256);
          }
        }
}

// Settings that move data to the host do not change the weights. With a divided optimizer
// (ring.shard_optimizer), the replica is in the host's memory. Without batches to add up or a norm
// to wait for, updates begin earlier.
BOOST_AUTO_TEST_CASE(the_bits_do_not_depend_on_where_a_replica_is) {
  const auto hash_of = [](const fields& how, std::size_t workers) {
    const auto run = train(job_with(cnn, how + fields{on_gpu}), workers, gpus(1));
    BOOST_TEST(run.summary.failure == "");
    return run.summary.weights_sha256;
  };
  BOOST_TEST(hash_of(ring + momentum, 2)
             == hash_of(ring + momentum + fields{"ring.shard_optimizer=true"}, 2));
  BOOST_TEST(hash_of(ring + momentum, 1)
             == hash_of(ring + momentum + fields{"optimizer.clip_norm=1e30"}, 1));
}

BOOST_AUTO_TEST_CASE(replicas_do_not_depend_on_the_order_of_streams) {
  for (const auto& protocol : protocols) {
    const auto job = job_with(cnn, protocol + adam + fields{on_gpu});
    const auto first = train(job, 2, gpus(1, {.order = std::nullopt}));
    for (const std::uint64_t seed : {2, 4, 5})
      BOOST_TEST(train(job, 2, gpus(1, {.order = seed})).summary.weights_sha256
                 == first.summary.weights_sha256);
  }
}

namespace {

/// Counts the bytes copied in 12 steps: the difference of two runs over the same samples, of which
/// one has 12 more steps.
struct more_steps {
  explicit more_steps(const fields& how, std::size_t workers = 1)
    : weights(context_of(job_with(mlp, how))->parameters().size() * sizeof(float)) {
    const auto of = [&](const std::string& batch) {
      return traffic_of(job_with(mlp, how + fields{"epochs=2", on_gpu, "data.batch=" + batch}),
                        workers);
    };
    const auto many = of("2");
    const auto few = of("4");
    in = many.in - few.in;
    out = many.out - few.out;
  }

  std::size_t weights;
  std::size_t in = 0;
  std::size_t out = 0;
};

} // namespace

// Between host and GPU, a step copies only a loss and a norm. In a ring of two workers, each also
// copies its gradient to the host and the sum back.
BOOST_AUTO_TEST_CASE(what_steps_copy) {
  const more_steps alone{ring};
  BOOST_TEST(alone.in < alone.weights / 2);
  BOOST_TEST(alone.out < alone.weights / 2);
  for (const std::string more : {"optimizer.clip_norm=0.5", "accumulate=2", "precision=FLOAT16"}) {
    const more_steps other{ring + fields{more}};
    BOOST_TEST(other.in < other.weights / 2);
    BOOST_TEST(other.out < other.weights / 2);
  }
  const more_steps apart{{"protocol=LOCAL_SGD", "local_sgd.every=1000"}};
  BOOST_TEST(apart.in < apart.weights / 2);
  BOOST_TEST(apart.out < apart.weights / 2);
  const more_steps two{ring, 2}; // the second run has six more steps of each worker
  BOOST_TEST(two.in >= 12 * two.weights);
  BOOST_TEST(two.in < 13 * two.weights);
  BOOST_TEST(two.out >= 12 * two.weights);
  BOOST_TEST(two.out < 13 * two.weights);
}

// If the gradients stay on the GPU, one launch updates all buckets, and one launch copies the new
// weights to the executor.
BOOST_AUTO_TEST_CASE(launches_do_not_depend_on_buckets) {
  const auto job_of = [](const std::string& bucket_bytes, const std::string& batch) {
    return job_with(
      mlp,
      ring + adam + fields{on_gpu, "runtime.bucket_bytes=" + bucket_bytes, "data.batch=" + batch});
  };
  const auto launches_of_steps = [&](const std::string& bucket_bytes) {
    const auto many = train(job_of(bucket_bytes, "2"), 1, gpus(1)); // 12 more steps
    const auto few = train(job_of(bucket_bytes, "4"), 1, gpus(1));
    BOOST_TEST(many.summary.failure == "");
    return many.launches - few.launches;
  };
  BOOST_TEST(context_of(job_of("4", "2"))->buckets().size() == 4U);
  BOOST_TEST(context_of(job_of("60", "2"))->buckets().size() == 2U);
  BOOST_TEST(launches_of_steps("4") == launches_of_steps("60"));
}

// A run continues on the GPU from every checkpoint of another run, and gets the same weights, bit
// for bit.
BOOST_AUTO_TEST_CASE(a_replica_continues_from_a_checkpoint) {
  for (const auto& protocol : {ring, local})
    for (const std::size_t workers : {1, 2})
      BOOST_TEST_CONTEXT(text(protocol) << workers << " workers") {
        const auto job =
          job_with(cnn, protocol + adam + fields{"checkpoint={every_steps: 3 keep: 100}", on_gpu});
        simulation_options options;
        options.job = job;
        options.data = build_data(job);
        options.workers = workers;
        options.ps = 0;
        options.gpus = gpus(1);
        options.files = std::make_shared<memory_storage>();
        const auto whole = simulation{options}.run().summary;
        BOOST_TEST_REQUIRE(whole.failure == "");
        const auto names = options.files->directories(checkpoint_folder("out"));
        BOOST_TEST(names.size() >= 2U);
        for (const auto& name : names) {
          auto again = options;
          again.resume = load(*options.files, job, name);
          again.files = std::make_shared<memory_storage>();
          const auto rest = simulation{again}.run().summary;
          BOOST_TEST(rest.failure == "");
          BOOST_TEST(rest.weights_sha256 == whole.weights_sha256, name);
        }
      }
}

// Allocation N, copy N to the GPU, or copy N to the host fails, for N = 0, 1, 2, ... until a run
// has no failure.
BOOST_AUTO_TEST_CASE(a_gpu_with_a_replica_that_fails) {
  for (const auto& protocol : {ring, local}) {
    const auto job = job_with(mlp, protocol + momentum + fields{on_gpu, "epochs=1"});
    const auto failures = [&](std::size_t step, const std::string& what, auto faults_at) {
      std::size_t result = 0;
      for (std::size_t n = 0;; n += step, ++result) {
        const auto failure = train(job, 2, gpus(1, faults_at(n))).summary.failure;
        if (failure.empty())
          return result;
        BOOST_TEST(failure.starts_with("worker/"));
        BOOST_TEST(contains(failure, " on GPU:0: " + what), failure);
      }
    };
    BOOST_TEST(failures(1, "out of memory of the GPU",
                        [](std::size_t n) { return faults{.allocations = n}; })
               >= 10U);
    BOOST_TEST(
      failures(3, "a copy to the GPU failed", [](std::size_t n) { return faults{.copies_in = n}; })
      >= 3U);
    BOOST_TEST(
      failures(3, "a copy from the GPU failed", [](std::size_t n) { return faults{.copies = n}; })
      >= 2U);
  }
}

// A gradient that is not finite is left out and changes nothing. The first bad step and the
// messages are the same as on the CPU.
BOOST_AUTO_TEST_CASE(gradients_that_are_left_out) {
  for (const auto& protocol : {ring, local})
    for (const std::size_t workers : {1, 2}) {
      const auto how = protocol + fields{"learning_rate={base: 1e30}", "max_bad=2"};
      const auto cpu = train(job_with(mlp, how), workers, nullptr);
      const auto gpu = train(job_with(mlp, how + fields{on_gpu}), workers, gpus(1));
      BOOST_TEST(gpu.summary.not_finite);
      BOOST_TEST(contains(gpu.summary.failure, "That makes 2 bad gradients in a row"));
      BOOST_TEST(gpu.summary.failure == cpu.summary.failure);
    }
}

BOOST_AUTO_TEST_CASE(memory_of_a_replica_on_a_gpu) {
  const auto devices = gpus(1);
  const auto more_than_shards = [&](const fields& how, std::size_t workers) {
    const auto bytes = [&](const fields& x) {
      const auto context = context_of(job_with(mlp, x + adam + fields{on_gpu}));
      const auto result = device_memory(*context, {job_kind::worker, 0}, workers, 2, devices.get());
      const auto vector = context->parameters().size() * sizeof(float);
      return std::pair{result.device / vector, result.pinned / vector};
    };
    const auto a = bytes(how);
    const auto b = bytes({"protocol=SYNC_PS"});
    return std::pair{a.first - b.first, a.second - b.second};
  };
  // Six vectors: the weights and two slots of the optimizer's state, in two copies each. The
  // seventh is the sum of the gradients.
  BOOST_TEST((more_than_shards(ring, 1) == std::pair<std::size_t, std::size_t>{6, 0}));
  BOOST_TEST((more_than_shards(ring + fields{"accumulate=2"}, 1)
              == std::pair<std::size_t, std::size_t>{7, 0}));
  BOOST_TEST((more_than_shards(ring, 2) == std::pair<std::size_t, std::size_t>{7, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
