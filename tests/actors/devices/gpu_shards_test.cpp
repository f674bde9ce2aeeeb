// Parameter servers that make their updates on a simulated GPU.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/job_file.hpp"
#include "actors/simulation/simulation.hpp"
#include "actors/worker/task_device.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(gpu_shards)

namespace {

const std::string shards_on_gpu = "device[0]=/job:ps/task:*/device:GPU:0";

const std::vector<std::string> optimizers{
  "optimizer={ kind: SGD weight_decay: 0.01 }",
  "optimizer={ kind: MOMENTUM momentum: 0.9 l1: 0.001 }",
  "optimizer={ kind: NESTEROV momentum: 0.9 clip_norm: 1 }",
  "optimizer={ kind: ADAGRAD }",
  "optimizer={ kind: MOMENTUM momentum: 0.9 weight_decay: 0.01 lazy: true }",
  "optimizer={ kind: RMSPROP momentum: 0.5 clip_value: 0.1 }",
  "optimizer={ kind: ADAM group { match: \"*bias\" learning_rate_scale: 2 } }",
  "optimizer={ kind: ADAMW weight_decay: 0.1 }",
  "optimizer={ kind: LAMB }"};

} // namespace

// Updates on a GPU give the same weights as on the CPU, bit for bit, also with batch normalization
// (which has state) and with a moving average. LAMB is an exception, because its norms are rounded
// differently.
BOOST_AUTO_TEST_CASE(shards_on_a_gpu_have_the_bits_of_the_cpu) {
  for (const std::string protocol : {"SYNC_PS", "ASYNC_PS", "SSP"})
    for (const auto& optimizer : optimizers)
      BOOST_TEST_CONTEXT(protocol << ", " << optimizer) {
        const std::vector<std::string> more{"protocol=" + protocol, optimizer,
                                            "learning_rate={base: 0.01}",
                                            "moving_average={decay: 0.9}"};
        const auto cpu = train(job_with(cnn, more), 2, nullptr);
        auto placed = more;
        placed.push_back(shards_on_gpu);
        const auto gpu = train(job_with(cnn, placed), 2, gpus(1));
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(gpu.launches > 0U);
        if (optimizer.find("LAMB") != std::string::npos)
          BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
        else
          BOOST_TEST(gpu.summary.weights_sha256 == cpu.summary.weights_sha256);
      }
}

// Batches of sparse features touch few rows of a table. With these rules, a server copies and
// updates only these rows. If several workers together touch many rows, it updates all rows.
BOOST_AUTO_TEST_CASE(rows_of_a_table) {
  const temporary_directory folder;
  const auto path = (folder.path() / "records.libsvm").string();
  std::ofstream file{path};
  for (int i = 0; i < 60; ++i) {
    file << i % 3;
    for (int k = 0; k <= i % 5; ++k)
      file << ' ' << 1 + 48 * k + (i * 37) % 48 << ':' << 0.5 + 0.25 * (i % 4);
    file << '\n';
  }
  file.close();
  const std::string model = "model={ layer { dense { units: 6 activation: TANH } } "
                            "layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }";
  for (const auto& [protocol, workers] :
       {std::pair<std::string, std::size_t>{"SYNC_PS", 2}, {"SYNC_PS", 6}, {"ASYNC_PS", 1}})
    for (const std::string features : {"2000", "240"})
      for (const std::string rule :
           {"kind: SGD", "kind: ADAGRAD clip_value: 0.1", "kind: ADAGRAD clip_norm: 0.5",
            "kind: ADAMW weight_decay: 0.01 lazy: true"})
        BOOST_TEST_CONTEXT(protocol << ", " << workers << " workers, " << features << ", "
                                    << rule) {
          const std::vector<std::string> more{"data={ libsvm { path: \"" + path + "\" features: "
                                                + features + " } split { test: 0.2 } batch: 4 }",
                                              "protocol=" + protocol, "optimizer={ " + rule + " }"};
          auto placed = more;
          placed.push_back(shards_on_gpu);
          const auto cpu = train(job_with(model, more), workers, nullptr);
          const auto gpu = train(job_with(model, placed), workers, gpus(1));
          BOOST_TEST(gpu.summary.failure == "");
          BOOST_TEST(gpu.launches > 0U);
          BOOST_TEST(gpu.summary.weights_sha256 == cpu.summary.weights_sha256);
        }
}

BOOST_AUTO_TEST_CASE(all_tasks_on_gpus) {
  const std::vector<std::string> placed{
    "protocol=ASYNC_PS", "device[0]=/job:ps/task:*/device:GPU:1",
    "device[1]=/job:worker/task:*/device:GPU:0", "device[2]=/job:chief/task:0/device:GPU:1"};
  const auto gpu = train(job_with(mlp, placed), 2, gpus(2));
  BOOST_TEST(gpu.summary.failure == "");
  const auto cpu = train(job_with(mlp, {"protocol=ASYNC_PS"}), 2, nullptr);
  BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
  BOOST_TEST(contains(gpu.metrics,
                      R"("worker/0":"GPU:0","worker/1":"GPU:0","ps/0":"GPU:1","ps/1":"GPU:1",)"
                      R"("coordinator/0":"GPU:1"})"));
}

// A run on a GPU continues from the checkpoints of a run on the CPU, and the other way round.
BOOST_AUTO_TEST_CASE(a_run_continues_on_other_devices) {
  for (const std::string protocol : {"SYNC_PS", "ASYNC_PS"})
    for (const std::string optimizer :
         {"optimizer={ kind: MOMENTUM momentum: 0.9 }", "optimizer={ kind: ADAM }"})
      for (const bool began_on_gpu : {false, true})
        BOOST_TEST_CONTEXT(protocol << ", " << optimizer << ", began on a GPU: " << began_on_gpu) {
          const std::vector<std::string> more{"protocol=" + protocol, optimizer,
                                              "checkpoint={every_steps: 2 keep: 100}"};
          auto placed = more;
          placed.push_back(shards_on_gpu);
          const auto job = job_with(mlp, more);
          const auto other = job_with(mlp, placed);
          // With a single worker, both runs have the same gradients.
          simulation_options options;
          options.job = began_on_gpu ? other : job;
          options.data = build_data(job);
          options.workers = 1;
          options.ps = 2;
          options.gpus = gpus(1);
          options.files = std::make_shared<memory_storage>();
          const auto whole = simulation{options}.run().summary;
          BOOST_TEST_REQUIRE(whole.failure == "");
          const auto names = options.files->directories(checkpoint_folder("out"));
          BOOST_TEST(names.size() >= 4U);
          for (const auto& name : names) {
            auto again = options;
            again.job = began_on_gpu ? job : other;
            again.resume = load(*options.files, again.job, name);
            again.files = std::make_shared<memory_storage>();
            const auto rest = simulation{again}.run().summary;
            BOOST_TEST(rest.failure == "");
            BOOST_TEST(rest.weights_sha256 == whole.weights_sha256, name);
          }
        }
}

BOOST_AUTO_TEST_CASE(shards_on_a_gpu_that_is_missing) {
  const std::string place = "device[0]=/job:ps/task:1/device:GPU:3";
  const auto refused = train(job_with(mlp, {"protocol=SYNC_PS", place}), 2, gpus(2));
  BOOST_TEST(contains(refused.summary.failure, "ps/1 cannot compute on GPU:3"));
  const auto soft =
    train(job_with(mlp, {"protocol=SYNC_PS", place, "soft_placement=true"}), 2, gpus(2));
  BOOST_TEST(soft.summary.failure == "");
  BOOST_TEST(std::ranges::count_if(
               soft.notices,
               [](const std::string& x) { return x.starts_with("ps/1 cannot compute on GPU:3"); })
             == 1);
  const auto context = context_of(job_with(mlp, {"protocol=SYNC_PS", place}));
  BOOST_TEST(error_of([&] { check_devices(*context, 2, 1, {}, nullptr); })
             == "device[0]: there is no ps/1; the cluster has 1 parameter servers, counted from 0");
  // In a ring, parameter servers are idle. So their GPU does not have to exist.
  BOOST_TEST(train(job_with(mlp, {"protocol=RING", place}), 2, gpus(2)).summary.failure == "");
  BOOST_TEST(contains(error_of([&] {
                        job_with(mlp, {"protocol=HOGWILD", "optimizer={kind: SGD}", place});
                      }),
                      "HOGWILD workers share the weights in the host's memory"));
}

// Allocation N fails, for N = 0, 1, 2, ... until a run has no failure. Then the same for copies.
// All nodes must end normally.
BOOST_AUTO_TEST_CASE(shards_on_a_gpu_that_fails) {
  const auto job = job_with(mlp, {"protocol=SYNC_PS", shards_on_gpu, "epochs=1"});
  std::size_t allocations = 0;
  for (;; ++allocations) {
    const auto failure = train(job, 2, gpus(1, {.allocations = allocations})).summary.failure;
    if (failure.empty())
      break;
    BOOST_TEST(contains(failure,
                        " on GPU:0: out of memory of the GPU. The weights, the optimizer's "
                        "state and a gradient take 1 MB there in all"));
  }
  BOOST_TEST(allocations >= 4U);
  std::size_t failures = 0;
  for (std::size_t copies = 0;; copies += 3, ++failures) {
    const auto failure = train(job, 2, gpus(1, {.copies = copies})).summary.failure;
    if (failure.empty())
      break;
    BOOST_TEST(contains(failure, " on GPU:0: a copy from the GPU failed"));
    BOOST_TEST(failure.starts_with("ps/"));
  }
  BOOST_TEST(failures >= 1U);
}

BOOST_AUTO_TEST_CASE(memory_of_a_gpu) {
  const auto devices = gpus(1);
  const auto context =
    context_of(job_with(mlp,
                        {"protocol=SYNC_PS", "optimizer={kind: ADAM}", shards_on_gpu, on_gpu_too,
                         "device[2]=/job:coordinator/task:0/device:GPU:0"}));
  const auto bytes = [&](job_kind job, std::uint32_t index) {
    return device_memory(*context, {job, index}, 2, 2, devices.get()).device;
  };
  // In GPU memory, a shard has weights, a gradient and two slots of optimizer state. If it updates
  // in pieces, it has a second copy of all but the gradient.
  const auto vectors = context->protocol.in_pieces ? 4 + 3 : 4;
  BOOST_TEST(bytes(job_kind::ps, 0) + bytes(job_kind::ps, 1)
             == vectors * context->parameters().size() * sizeof(float));
  BOOST_TEST(bytes(job_kind::worker, 1) > 2 * context->parameters().size() * sizeof(float));
  BOOST_TEST(bytes(job_kind::coordinator, 0) > context->parameters().size() * sizeof(float));
  BOOST_TEST(bytes(job_kind::evaluator, 0) == 0U);
  BOOST_TEST(device_memory(*context, {job_kind::worker, 1}, 2, 2, nullptr).device == 0U);
  // Pinned host memory: each shard has one vector of the size of its range, for gradients and
  // weights. A worker has two vectors of the size of the model: one for weights, and one for a
  // gradient.
  const auto pinned = [&](job_kind job, std::uint32_t index) {
    return device_memory(*context, {job, index}, 2, 2, devices.get()).pinned;
  };
  BOOST_TEST(pinned(job_kind::ps, 0) + pinned(job_kind::ps, 1)
             == context->parameters().size() * sizeof(float));
  BOOST_TEST(pinned(job_kind::worker, 1) > 2 * context->parameters().size() * sizeof(float));
  BOOST_TEST(pinned(job_kind::evaluator, 0) == 0U);
}

namespace {

/// 30 sparse records. Record r has 1 + r % 3 entries.
class few_entries final : public dataset {
public:
  few_entries() {
    record_.features = feature_kind::sparse;
    record_.dims = {5000};
    record_.labels = label_kind::classes;
    record_.label_width = 3;
  }

  std::uint64_t size() const noexcept override { return 30; }
  const record_shape& record() const noexcept override { return record_; }
  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    std::uint64_t result = 0;
    for (const auto r : records)
      result += 1 + r % 3;
    return result;
  }
  void read(std::span<const std::uint64_t>, feature_batch, label_batch) const override {}

private:
  record_shape record_;
};

} // namespace

// A batch has 20 entries on average. There is memory for 30 entries: a column and a value of each
// entry, and for the gradient, three more integers and another value. The entries of the gradient
// have two more integers in all. There is also memory for 30 rows of the table, which has three
// columns, and for two positions of each row.
BOOST_AUTO_TEST_CASE(memory_of_sparse_features) {
  const few_entries records;
  auto job = parse_job(R"(
    model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }
    data { libsvm { path: "records.libsvm" features: 5000 } batch: 10 }
    learning_rate { base: 0.05 }
    protocol: SYNC_PS epochs: 2
    device: "/job:worker/task:*/device:GPU:0")",
                       "job");
  const auto context = make_job_context(job, shape_of(records));
  const auto devices = gpus(1);
  const task_name worker{job_kind::worker, 0};
  const auto bytes = [&](const dataset* which) {
    return device_memory(*context, worker, 1, 1, devices.get(), false, which);
  };
  const std::size_t rows = 4 * 30 * (3 + 2);
  BOOST_TEST(bytes(&records).device - bytes(nullptr).device == 4 * (30 * 6 + 2) + rows);
  BOOST_TEST(bytes(&records).pinned - bytes(nullptr).pinned == 4 * (30 * 6 + 2) + rows);
}

// A shard that updates only some rows also has memory for their positions: two numbers for each of
// at most n / 8 ranges.
BOOST_AUTO_TEST_CASE(memory_of_updates_of_rows) {
  const few_entries records;
  const auto job = parse_job(R"(
    model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }
    data { libsvm { path: "records.libsvm" features: 5000 } batch: 10 }
    learning_rate { base: 0.05 } optimizer { kind: SGD }
    protocol: SYNC_PS epochs: 2
    device: "/job:ps/task:*/device:GPU:0")",
                             "job");
  const auto context = make_job_context(job, shape_of(records));
  const std::size_t n = context->parameters().size();
  BOOST_TEST(device_memory(*context, {job_kind::ps, 0}, 1, 1, gpus(1).get()).pinned
             == sizeof(float) * n + 2 * sizeof(std::uint32_t) * (n / 8));
}

BOOST_AUTO_TEST_SUITE_END()
