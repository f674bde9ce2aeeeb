// Workers and evaluations compute on a simulated GPU. Everything above the device is the same code
// as with a real GPU.

#include "actors/cluster/training.hpp"
#include "actors/worker/task_device.hpp"
#include "kernels/cuda/gpus.hpp"
#include "messages/configure.hpp"
#include "tests/actors/devices/gpu_jobs.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(devices)

// Tolerance: the weights are at most about 1, and a step rounds only a few times. So the error of
// ten steps is far below 1e-5.
BOOST_AUTO_TEST_CASE(a_gpu_trains_like_the_cpu) {
  for (const auto& model : {mlp, cnn, lstm, both_ways})
    for (const std::string protocol : {"ASYNC_PS", "RING"})
      BOOST_TEST_CONTEXT(protocol << ", " << model) {
        const auto cpu = train(job_with(model, {"protocol=" + protocol}), 2, nullptr);
        const auto gpu = train(job_with(model, {"protocol=" + protocol, on_gpu}), 2, gpus(1));
        BOOST_TEST(cpu.summary.failure == "");
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(gpu.summary.samples == 48U);
        BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
        // The GPU rounds differently. Equal bits would mean that the GPU was not used.
        BOOST_TEST(cpu.summary.weights_sha256 != gpu.summary.weights_sha256);
      }
}

// The weights are the same in each run, bit for bit, even if the streams of the GPU run in another
// order.
BOOST_AUTO_TEST_CASE(workers_in_step_give_the_same_bits_in_each_run) {
  for (const std::string protocol : {"SYNC_PS", "RING"}) {
    const auto job = job_with(mlp, {"protocol=" + protocol, on_gpu, "accumulate=2"});
    const auto first = train(job, 2, gpus(1, {.order = std::nullopt}));
    BOOST_TEST(first.summary.failure == "");
    for (const std::uint64_t seed : {2, 4, 5})
      BOOST_TEST(train(job, 2, gpus(1, {.order = seed}), seed).summary.weights_sha256
                 == first.summary.weights_sha256);
  }
}

// Two workers train 24 samples twice in batches of 5, so there are ten batches. Each batch is
// copied as two feeds (inputs of the graph). Most copies begin before the GPU has finished the
// previous batch.
BOOST_AUTO_TEST_CASE(batches_are_copied_while_the_gpu_computes) {
  for (const std::string protocol : {"RING", "SYNC_PS"})
    for (const std::string more : {"precision=FLOAT32", "precision=FLOAT16", "accumulate=2"}) {
      const auto uploads =
        traffic_of(job_with(mlp, {"protocol=" + protocol, more, on_gpu}), 2).uploads;
      BOOST_TEST(uploads >= 2U * 2U, protocol << ", " << more << ": " << uploads);
      BOOST_TEST(uploads <= 2U * 10U);
    }
}

// Weights are copied to the GPU once per step, because they come from a parameter server. With
// accumulate, a step has three batches, and only the first of them needs new weights.
BOOST_AUTO_TEST_CASE(weights_are_copied_once_in_a_step) {
  const std::vector<std::string> steps{"protocol=SYNC_PS", "data.batch=4", on_gpu};
  auto sums = steps;
  sums.emplace_back("accumulate=3");
  const auto job = job_with(mlp, steps);
  const auto weights = context_of(job)->parameters().size() * sizeof(float);
  // 24 samples are trained twice in batches of 4. Without accumulate, these are twelve steps. With
  // accumulate, they are four steps of three batches.
  const auto each = traffic_of(job, 1).in;
  const auto first = traffic_of(job_with(mlp, sums), 1).in;
  BOOST_TEST(each >= first + 8 * weights);
  BOOST_TEST(each < first + 9 * weights);
}

BOOST_AUTO_TEST_CASE(tf32_where_a_gpu_computes) {
  const auto exact = train(job_with(mlp, {"protocol=RING", on_gpu}), 2, gpus(1));
  const auto rounded = train(job_with(mlp, {"protocol=RING", on_gpu, "tf32=true"}), 2, gpus(1));
  BOOST_TEST(rounded.summary.failure == "");
  BOOST_TEST(rounded.summary.weights_sha256 != exact.summary.weights_sha256);
  BOOST_TEST(distance(rounded.weights, exact.weights) <= 2e-3);
  BOOST_TEST(rounded.notices.empty());
  const auto cpu = train(job_with(mlp, {"protocol=RING"}), 2, nullptr);
  const auto ignored = train(job_with(mlp, {"protocol=RING", "tf32=true"}), 2, nullptr);
  BOOST_TEST(ignored.summary.weights_sha256 == cpu.summary.weights_sha256);
  BOOST_TEST(
    std::ranges::count_if(ignored.notices,
                          [](const std::string& x) { return contains(x, "tf32 has no effect"); })
    == 2);
}

BOOST_AUTO_TEST_CASE(checked_kernels_compute_the_same) {
  const auto usual = train(job_with(mlp, {"protocol=RING", on_gpu}), 2, gpus(1));
  const auto checked =
    train(job_with(mlp, {"protocol=RING", on_gpu, "runtime.check_kernels=true"}), 2, gpus(1));
  BOOST_TEST(checked.summary.weights_sha256 == usual.summary.weights_sha256);
}

BOOST_AUTO_TEST_CASE(one_worker_on_a_gpu_and_one_on_the_cpu) {
  const auto mixed =
    train(job_with(mlp, {"protocol=RING", on_gpu, "device[1]=/job:worker/task:1/device:CPU:0"}), 2,
          gpus(1));
  const auto cpu = train(job_with(mlp, {"protocol=RING"}), 2, nullptr);
  BOOST_TEST(mixed.summary.failure == "");
  BOOST_TEST(
    contains(mixed.metrics, R"({"event":"devices","worker/0":"GPU:0","worker/1":"CPU:0"})"));
  BOOST_TEST(distance(cpu.weights, mixed.weights) <= 1e-5);
}

BOOST_AUTO_TEST_CASE(a_missing_gpu_is_refused) {
  const auto job = job_with(mlp, {"device[0]=/job:worker/task:1/device:GPU:3"});
  const auto context = context_of(job);
  BOOST_TEST(contains(device_error_of([&] {
                        choose_device(*context, {job_kind::worker, 1}, gpus(2).get());
                      }),
                      "worker/1 cannot compute on GPU:3: there is no GPU 3: this machine has 2"));
  BOOST_TEST(contains(device_error_of([&] {
                        choose_device(*context, {job_kind::worker, 1}, nullptr);
                      }),
                      "this program was built without code for GPUs"));
  BOOST_TEST(choose_device(*context, {job_kind::worker, 0}, nullptr).text == "CPU:0");
  BOOST_TEST(choose_device(*context, {job_kind::worker, 1}, gpus(4).get()).text
             == "GPU:3 (simulated)");
  const auto run = train(job, 2, gpus(2));
  BOOST_TEST(contains(run.summary.failure, "worker/1 cannot compute on GPU:3"));
  BOOST_TEST(contains(run.summary.failure, "soft_placement: true"));
}

BOOST_AUTO_TEST_CASE(soft_placement_falls_back_with_one_notice) {
  const auto run = train(
    job_with(mlp,
             {"protocol=RING", "soft_placement=true", "device[0]=/job:worker/task:1/device:GPU:3"}),
    2, gpus(2));
  BOOST_TEST(run.summary.failure == "");
  BOOST_TEST(run.summary.weights_sha256
             == train(job_with(mlp, {"protocol=RING"}), 2, nullptr).summary.weights_sha256);
  BOOST_TEST(std::ranges::count_if(run.notices,
                                   [](const std::string& x) {
                                     return x.starts_with("worker/1 cannot compute on GPU:3")
                                       && x.ends_with("on the CPU instead (soft_placement)");
                                   })
             == 1);
}

BOOST_AUTO_TEST_CASE(workers_that_do_not_exist) {
  const auto context = context_of(job_with(mlp, {"device[0]=/job:worker/task:2/device:GPU:0"}));
  BOOST_TEST(error_of([&] { check_devices(*context, 2, 0, {}, nullptr); })
             == "device[0]: there is no worker/2; the cluster has 2 workers, counted from 0");
  BOOST_TEST(error_of([&] { check_devices(*context, 3, 0, {}, nullptr); }) == "(no error)");
}

// In the last step, one worker has no samples. Steps have several batches. The second worker is on
// a GPU or on the CPU.
BOOST_AUTO_TEST_CASE(normalization_over_all_workers) {
  for (const std::string protocol : {"SYNC_PS", "RING"})
    for (const std::string second : {"GPU:0", "CPU:0"}) {
      const std::vector<std::string> more{"protocol=" + protocol, "accumulate=2"};
      const auto cpu = train(job_with(normalized_together, more), 2, nullptr);
      auto placed = more;
      placed.push_back(on_gpu);
      placed.push_back("device[1]=/job:worker/task:1/device:" + second);
      const auto gpu = train(job_with(normalized_together, placed), 2, gpus(1));
      BOOST_TEST(gpu.summary.failure == "");
      BOOST_TEST(gpu.summary.samples == 48U);
      BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-4);
      BOOST_TEST(gpu.launches > 0U);
    }
}

// Copies to the GPU fail. Some of them copy the sums over all workers that the normalization needs.
BOOST_AUTO_TEST_CASE(copies_to_a_gpu_that_fail) {
  const auto job = job_with(normalized_together, {"protocol=RING", "epochs=1", on_gpu});
  std::size_t copies = 0;
  for (;; ++copies) {
    const auto failure = train(job, 2, gpus(1, {.copies_in = copies})).summary.failure;
    if (failure.empty())
      break;
    BOOST_TEST(contains(failure, "GPU:0: a copy to the GPU failed"), failure);
  }
  BOOST_TEST(copies > 10U);
}

// CPU and GPU round to 16 bits after each operation. But they fuse (compute without rounding in
// between) different operations.
BOOST_AUTO_TEST_CASE(a_gpu_trains_in_16_bits_like_the_cpu) {
  for (const auto& model : {mlp, cnn, lstm})
    for (const std::string type : {"BFLOAT16", "FLOAT16"})
      BOOST_TEST_CONTEXT(type << ", " << model) {
        const std::vector<std::string> more{"protocol=RING", "precision=" + type};
        const auto cpu = train(job_with(model, more), 2, nullptr);
        const auto gpu =
          train(job_with(model, {"protocol=RING", "precision=" + type, on_gpu}), 2, gpus(1));
        const auto wide = train(job_with(model, {"protocol=RING", on_gpu}), 2, gpus(1));
        BOOST_TEST(cpu.summary.failure == "");
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(gpu.summary.samples == 48U);
        BOOST_TEST(distance(cpu.weights, gpu.weights) <= (type == "FLOAT16" ? 2e-3 : 1.6e-2));
        BOOST_TEST(gpu.summary.weights_sha256 != wide.summary.weights_sha256);
      }
  for (const std::string protocol : {"SYNC_PS", "RING"}) {
    const std::vector<std::string> more{"protocol=" + protocol, "precision=BFLOAT16"};
    const auto cpu = train(job_with(normalized_together, more), 2, nullptr);
    auto placed = more;
    placed.push_back(on_gpu);
    const auto gpu = train(job_with(normalized_together, placed), 2, gpus(1));
    BOOST_TEST(gpu.summary.failure == "");
    BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1.6e-2);
  }
}

BOOST_AUTO_TEST_CASE(a_gpu_without_bfloat16_is_refused) {
  const auto old = cuda::make_gpus([](std::size_t) -> std::unique_ptr<cuda::device> {
    auto result = std::make_unique<simulated_device>();
    result->refused_type = dtype::bfloat16;
    return result;
  });
  const std::vector<std::string> more{"precision=BFLOAT16", on_gpu};
  const auto context = context_of(job_with(mlp, more));
  const auto error = device_error_of([&] {
    choose_device(*context, {job_kind::worker, 0}, old.get());
  });
  BOOST_TEST(contains(error, "worker/0 cannot compute on GPU:0: "), error);
  BOOST_TEST(contains(error, "precision: FLOAT32 or FLOAT16"), error);
  const auto other = context_of(job_with(mlp, {"precision=FLOAT16", on_gpu}));
  BOOST_TEST(choose_device(*other, {job_kind::worker, 0}, old.get()).text == "GPU:0 (simulated)");
  auto soft = more;
  soft.push_back("soft_placement=true");
  const auto placed = context_of(job_with(mlp, soft));
  BOOST_TEST(choose_device(*placed, {job_kind::worker, 0}, old.get()).text == "CPU:0");
}

BOOST_AUTO_TEST_CASE(sparse_features) {
  const temporary_directory folder;
  const auto path = (folder.path() / "records.libsvm").string();
  std::ofstream file{path};
  for (int i = 0; i < 60; ++i) {
    file << i % 3;
    for (int k = 0; k <= i % 7; ++k)
      file << ' ' << 1 + 40 * k + i % 40 << ':' << 0.5 + 0.25 * (i % 4);
    file << '\n';
  }
  file.close();
  const std::vector<std::string> more{"data={ libsvm { path: \"" + path
                                        + "\" features: 400 } split { test: 0.2 } batch: 8 }",
                                      "protocol=SYNC_PS"};
  const std::string model = "model={ layer { dense { units: 6 activation: TANH } } "
                            "layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }";
  const auto cpu = train(job_with(model, more), 2, nullptr);
  auto placed = more;
  placed.push_back(on_gpu);
  placed.push_back("device[1]=/job:coordinator/task:0/device:GPU:0");
  const auto gpu = train(job_with(model, placed), 2, gpus(1));
  BOOST_TEST(cpu.summary.failure == "");
  BOOST_TEST(gpu.summary.failure == "");
  BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
  BOOST_TEST(std::fabs(gpu.summary.test_loss - cpu.summary.test_loss) <= 1e-5);
}

namespace {

/// Jobs whose batches read few rows of a table. The records are in `folder`.
struct table_jobs {
  temporary_directory folder;

  table_jobs() {
    std::ofstream file{folder.path() / "records.libsvm"};
    for (int i = 0; i < 60; ++i) {
      file << i % 3;
      for (int k = 0; k <= i % 5; ++k)
        file << ' ' << 1 + 48 * k + (i * 37) % 48 << ':' << 0.5 + 0.25 * (i % 4);
      file << '\n';
    }
  }

  std::vector<std::string> changes(int features, const std::vector<std::string>& more) const {
    std::vector<std::string> result{
      "data={ libsvm { path: \"" + (folder.path() / "records.libsvm").string()
        + "\" features: " + std::to_string(features) + " } split { test: 0.2 } batch: 4 }",
      "optimizer={ kind: ADAGRAD }"};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
};

const std::string table_model = "model={ layer { dense { units: 6 activation: TANH } } "
                                "layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }";

/// Checks that two workers train the same weights on a GPU as on the CPU. Tolerance: as in
/// a_gpu_trains_like_the_cpu.
void check_as_on_the_cpu(const std::string& model, std::vector<std::string> changes) {
  const auto cpu = train(job_with(model, changes), 2, nullptr);
  changes.push_back(on_gpu);
  const auto gpu = train(job_with(model, changes), 2, gpus(1));
  BOOST_TEST(cpu.summary.failure == "");
  BOOST_TEST(gpu.summary.failure == "");
  BOOST_TEST(gpu.launches > 0U);
  BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
}

} // namespace

// A worker on a GPU copies only the rows of a table that its batch reads. The table is divided
// among two servers.
BOOST_AUTO_TEST_CASE(rows_of_a_table) {
  const table_jobs jobs;
  for (const std::string protocol : {"SYNC_PS", "ASYNC_PS"})
    for (const std::string how :
         {"", "accumulate=2", "optimizer={ kind: ADAM lazy: true }",
          "optimizer={ kind: ADAGRAD clip_norm: 0.5 }", "optimizer={ kind: MOMENTUM }"})
      for (const int features : {240, 2000})
        BOOST_TEST_CONTEXT(protocol << ", " << how << ", " << features << " features") {
          auto more = jobs.changes(features, {"protocol=" + protocol});
          if (!how.empty())
            more.push_back(how);
          check_as_on_the_cpu(table_model, more);
        }
}

// The tokens of a batch name the rows of an embedding. The weights are those of a worker on the
// CPU.
BOOST_AUTO_TEST_CASE(rows_of_an_embedding) {
  const temporary_directory folder;
  const auto path = (folder.path() / "text").string();
  std::ofstream{path} << "abcdeabcdeabccbadabcdeabcdabecdabcdeaabbccddeeabcdecdeabcdeabcbcdae";
  const std::string model =
    "model={ layer { embedding { width: 5 entries: 3000 } } loss: SOFTMAX_CROSS_ENTROPY }";
  for (const std::string protocol : {"SYNC_PS", "ASYNC_PS"}) {
    const std::vector<std::string> more{"data={ text { window: 4 path: \"" + path
                                          + "\" } batch: 4 }",
                                        "protocol=" + protocol, "optimizer={ kind: ADAGRAD }"};
    check_as_on_the_cpu(model, more);
  }
}

BOOST_AUTO_TEST_CASE(copies_do_not_depend_on_the_size_of_a_table) {
  const table_jobs jobs;
  const auto copies = [&](int features) {
    return traffic_of(job_with(table_model, jobs.changes(features, {"protocol=SYNC_PS", on_gpu})),
                      2);
  };
  const auto small = copies(2000);
  const auto large = copies(50'000);
  BOOST_TEST(small.in == large.in);
  BOOST_TEST(small.out == large.out);
}

// Tolerance: the losses are about 2, so rounding errors are far below 1e-6.
BOOST_AUTO_TEST_CASE(evaluations_on_a_gpu) {
  const std::string on_coordinator = "device[0]=/job:chief/task:0/device:GPU:0";
  const std::string on_evaluator = "device[0]=/job:evaluator/task:0/device:GPU:0";
  for (const auto& model : {mlp, cnn, lstm})
    for (const bool evaluator : {false, true})
      BOOST_TEST_CONTEXT("evaluator: " << evaluator << ", " << model) {
        const std::string measures = "evaluate={measure: TOP_5 measure: CONFUSION}";
        const auto cpu = train(job_with(model, {"protocol=SYNC_PS", measures}), 2, nullptr);
        const auto gpu =
          train(job_with(model,
                         {"protocol=SYNC_PS", measures, evaluator ? on_evaluator : on_coordinator}),
                2, gpus(1), 1, evaluator);
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(gpu.launches > 0U);
        BOOST_TEST(gpu.summary.weights_sha256 == cpu.summary.weights_sha256);
        BOOST_TEST(std::fabs(gpu.summary.test_loss - cpu.summary.test_loss) <= 1e-6);
        BOOST_TEST((gpu.summary.test_accuracy == cpu.summary.test_accuracy));
        BOOST_TEST((gpu.summary.measures.top_5 == cpu.summary.measures.top_5));
        BOOST_TEST(gpu.summary.measures.confusion == cpu.summary.measures.confusion);
      }
  // The coordinator evaluates here, so the device of the evaluator task is not used.
  const auto other = train(job_with(mlp, {"protocol=SYNC_PS", on_evaluator}), 2, gpus(1));
  BOOST_TEST(other.launches == 0U);
}

BOOST_AUTO_TEST_CASE(evaluations_on_a_gpu_that_is_missing) {
  const std::string place = "device[0]=/job:coordinator/task:0/device:GPU:3";
  const auto refused = train(job_with(mlp, {"protocol=RING", place}), 2, gpus(2));
  BOOST_TEST(contains(refused.summary.failure, "coordinator/0 cannot compute on GPU:3"));
  BOOST_TEST(contains(refused.summary.failure, "the coordinator computes on the CPU instead"));
  const auto soft =
    train(job_with(mlp, {"protocol=RING", place, "soft_placement=true"}), 2, gpus(2));
  BOOST_TEST(soft.summary.failure == "");
  BOOST_TEST(std::ranges::count_if(soft.notices,
                                   [](const std::string& x) {
                                     return x.starts_with("coordinator/0 cannot compute on GPU:3");
                                   })
             == 1);
}

// If the coordinator evaluates on its GPU and this GPU fails, the run ends. If the GPU of an
// evaluator task fails, the coordinator evaluates instead.
BOOST_AUTO_TEST_CASE(evaluations_on_a_gpu_that_fails) {
  for (const std::size_t products : {0, 1}) {
    const auto run =
      train(job_with(mlp, {"protocol=RING", "device[0]=/job:coordinator/task:0/device:GPU:0"}), 1,
            gpus(1, {.products = products}));
    BOOST_TEST(
      contains(run.summary.failure, "coordinator/0 on GPU:0: a product of matrices failed"));
  }
  BOOST_TEST(contains(
    train(job_with(mlp, {"protocol=RING", "device[0]=/job:coordinator/task:0/device:GPU:0"}), 1,
          gpus(1, {.allocations = 0}))
      .summary.failure,
    "coordinator/0 on GPU:0: out of memory of the GPU"));
  const auto left =
    train(job_with(mlp, {"protocol=RING", "device[0]=/job:evaluator/task:0/device:GPU:0"}), 1,
          gpus(1, {.allocations = 0}), 1, true);
  BOOST_TEST(left.summary.failure == "");
  BOOST_TEST(std::ranges::count_if(left.notices,
                                   [](const std::string& x) {
                                     return contains(
                                       x, "evaluator/0 on GPU:0: out of memory of the GPU");
                                   })
             == 1);
}

// The GPU fails at the first allocation, at the first matrix product, or at a later product.
BOOST_AUTO_TEST_CASE(a_gpu_that_fails_ends_the_run) {
  const auto job = job_with(mlp, {"protocol=SYNC_PS", on_gpu});
  BOOST_TEST(
    train(job, 2, gpus(1, {.allocations = 0})).summary.failure
    == "worker/0 on GPU:0: out of memory of the GPU. Batches of this size take 68 MB there in "
       "all");
  for (const std::size_t products : {0, 6})
    BOOST_TEST(contains(train(job, 1, gpus(1, {.products = products})).summary.failure,
                        "worker/0 on GPU:0: a product of matrices failed"));
}

// A program passes its own GPUs to a run on the real scheduler. There is only one worker, because
// only one thread at a time may use the simulator.
BOOST_AUTO_TEST_CASE(a_program_passes_its_gpus) {
  const auto result_with = [](std::shared_ptr<const gpu_set> devices) {
    caf::actor_system_config cfg;
    configure(cfg);
    caf::actor_system sys{cfg};
    const caf::scoped_actor self{sys};
    training_options options;
    options.job = job_with(mlp, {"protocol=RING", on_gpu});
    options.job.clear_output();
    options.gpus = std::move(devices);
    std::string result;
    self->request(spawn_training(sys, std::move(options)), caf::infinite, begin_training{})
      .receive([&](const trained& x) { result = x.summary.weights_sha256; },
               [&](const caf::error& error) {
                 result = error == errc::bad_input ? explain(error) : "another error";
               });
    return result;
  };
  const auto simulated = train(job_with(mlp, {"protocol=RING", on_gpu}), 1, gpus(1));
  BOOST_TEST(result_with(gpus(1)) == simulated.summary.weights_sha256);
  BOOST_TEST(contains(result_with(gpus(0)), "worker/0 cannot compute on GPU:0: there is no GPU 0"));
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_names_its_origin) {
  const auto job = job_with(mlp, {"protocol=RING", on_gpu, "learning_rate={base: 1e30}"});
  const auto run = train(job, 1, gpus(1));
  BOOST_TEST(run.summary.not_finite);
  BOOST_TEST(contains(run.summary.failure, "the first tensor with such a value: "));
}

BOOST_AUTO_TEST_SUITE_END()
