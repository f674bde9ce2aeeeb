// Workers that compute on a simulated GPU: through job, node, trainer and executor, as on a real
// one.

#include "actors/cluster/training.hpp"
#include "actors/model/model_file.hpp"
#include "actors/simulation/simulation.hpp"
#include "actors/worker/worker_device.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/formats/file.hpp"
#include "messages/configure.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The call at which a device fails; by default, it never fails.
struct faults {
  std::size_t allocations = ~std::size_t{0};
  std::size_t products = ~std::size_t{0};
};

class faulty_device final : public simulated_device {
public:
  explicit faulty_device(const faults& when) : left_(when) {}

  void* allocate(std::size_t bytes) override {
    if (left_.allocations-- == 0)
      throw device_error("out of memory of the GPU");
    return simulated_device::allocate(bytes);
  }
  void multiply(cuda::stream where, const cuda::product& x) override {
    if (left_.products-- == 0)
      throw device_error("a product of matrices failed");
    simulated_device::multiply(where, x);
  }

private:
  faults left_;
};

/// A machine with this number of GPUs.
std::shared_ptr<const gpu_set> gpus(std::size_t count, const faults& when = {}) {
  return cuda::make_gpus([count, when](std::size_t index) -> std::unique_ptr<cuda::device> {
    if (index >= count)
      throw device_error("there is no GPU " + std::to_string(index) + ": this machine has "
                         + std::to_string(count) + ", counted from 0");
    return std::make_unique<faulty_device>(when);
  });
}

const std::string mlp = "model={ layer { dense { units: 12 activation: RELU } } "
                        "layer { dropout { rate: 0.25 } } layer { dense { units: 10 } } "
                        "loss: SOFTMAX_CROSS_ENTROPY }";
const std::string cnn =
  "model={ layer { conv2d { filters: 3 kernel: 5 stride: 4 bias: false } } "
  "layer { batch_norm {} } layer { activation: RELU } layer { max_pool { kernel: 2 } } "
  "layer { flatten {} } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
const std::string lstm =
  "model={ layer { reshape { dims: 28 dims: 28 } } layer { lstm { hidden: 6 last: true } } "
  "layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
const std::string on_gpu = "device[0]=/job:worker/task:*/device:GPU:0";

proto::Job job_with(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> changes{
    model,       "data.digits={train: 24 test: 8}", "data.batch=5",
    "epochs=2",  "learning_rate={base: 0.05}",      "runtime.bucket_bytes=1024",
    "output=out"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

struct outcome {
  run_summary summary;
  std::vector<float> weights;
  std::vector<std::string> notices;
  std::string metrics;
};

outcome train(const proto::Job& job, std::size_t workers, std::shared_ptr<const gpu_set> devices,
              std::uint64_t seed = 1) {
  simulation_options options;
  options.seed = seed;
  options.job = job;
  options.data = build_data(job);
  options.workers = workers;
  options.ps = traits_of(job).uses_shards() ? 2 : 0;
  options.gpus = std::move(devices);
  simulation sim{options};
  outcome result;
  const auto end = sim.run();
  result.summary = end.summary;
  for (const auto& node : end.nodes)
    BOOST_TEST(node.has_value()); // It ended cleanly, even if a device failed.
  for (const auto& x : sim.seen().notices)
    result.notices.push_back(x.text);
  if (!result.summary.failure.empty())
    return result;
  const auto metrics = sim.files().contents("out/metrics.jsonl");
  result.metrics.assign(reinterpret_cast<const char*>(metrics.data()), metrics.size());
  const auto context = make_job_context(job, shape_of(*options.data.train));
  const auto file = sim.files().contents("out/weights.safetensors");
  result.weights = read_model(as_byte_span(file), context->parameters(), "weights").weights;
  return result;
}

/// The largest difference of two elements; NaN if one of them is.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const auto x = std::fabs(double{a[i]} - double{b[i]}); !(x <= result))
      result = x;
  return result;
}

std::string device_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const device_error& error) {
    return error.what();
  }
  return "(no device_error)";
}

std::shared_ptr<const job_context> context_of(const proto::Job& job) {
  return make_job_context(job, shape_of(*build_data(job).train));
}

} // namespace

BOOST_AUTO_TEST_SUITE(devices)

// Weights are at most about 1. A step rounds a few times, so ten steps stay far below 1e-5.
BOOST_AUTO_TEST_CASE(a_gpu_trains_like_the_cpu) {
  for (const auto& model : {mlp, cnn, lstm})
    for (const std::string protocol : {"ASYNC_PS", "RING"})
      BOOST_TEST_CONTEXT(protocol << ", " << model) {
        const auto cpu = train(job_with(model, {"protocol=" + protocol}), 2, nullptr);
        const auto gpu = train(job_with(model, {"protocol=" + protocol, on_gpu}), 2, gpus(1));
        BOOST_TEST(cpu.summary.failure == "");
        BOOST_TEST(gpu.summary.failure == "");
        BOOST_TEST(gpu.summary.samples == 48U);
        BOOST_TEST(distance(cpu.weights, gpu.weights) <= 1e-5);
        // Otherwise, nothing would show that the GPU computed this.
        BOOST_TEST(cpu.summary.weights_sha256 != gpu.summary.weights_sha256);
      }
}

BOOST_AUTO_TEST_CASE(workers_in_step_give_the_same_bits_in_each_run) {
  for (const std::string protocol : {"SYNC_PS", "RING"}) {
    const auto job = job_with(mlp, {"protocol=" + protocol, on_gpu, "accumulate=2"});
    const auto first = train(job, 2, gpus(1));
    BOOST_TEST(first.summary.failure == "");
    for (const std::uint64_t seed : {2, 3})
      BOOST_TEST(train(job, 2, gpus(1), seed).summary.weights_sha256
                 == first.summary.weights_sha256);
  }
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
  BOOST_TEST(contains(device_error_of([&] { choose_device(*context, 1, gpus(2).get()); }),
                      "worker/1 cannot compute on GPU:3: there is no GPU 3: this machine has 2"));
  BOOST_TEST(contains(device_error_of([&] { choose_device(*context, 1, nullptr); }),
                      "this program was built without code for GPUs"));
  BOOST_TEST(choose_device(*context, 0, nullptr).text == "CPU:0");
  BOOST_TEST(choose_device(*context, 1, gpus(4).get()).text == "GPU:3 (simulated)");
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
  BOOST_TEST(error_of([&] { check_devices(*context, 2, {}, nullptr); })
             == "device[0]: there is no worker/2; the cluster has 2 workers, counted from 0");
  BOOST_TEST(error_of([&] { check_devices(*context, 3, {}, nullptr); }) == "(no error)");
}

BOOST_AUTO_TEST_CASE(models_that_a_gpu_cannot_compute) {
  const std::string model = "model={ layer { name: \"norm\" batch_norm { sync: true } } "
                            "layer { flatten {} } layer { dense { units: 10 } } "
                            "loss: SOFTMAX_CROSS_ENTROPY }";
  const auto context = context_of(job_with(model, {"protocol=RING", on_gpu}));
  for (const auto& here : {std::vector<std::uint32_t>{}, std::vector<std::uint32_t>{1}}) {
    const auto text = error_of([&] { check_devices(*context, 2, here, gpus(1).get()); });
    BOOST_TEST(contains(text, "norm"));
    BOOST_TEST(contains(text, "set batch_norm.sync: false, or use a CPU"));
  }
  const auto soft =
    train(job_with(model, {"protocol=RING", on_gpu, "soft_placement=true"}), 2, gpus(1));
  BOOST_TEST(soft.summary.failure == "");
}

// At the first allocation, and at the first and a later product.
BOOST_AUTO_TEST_CASE(a_gpu_that_fails_ends_the_run) {
  const auto job = job_with(mlp, {"protocol=SYNC_PS", on_gpu});
  BOOST_TEST(
    train(job, 2, gpus(1, {.allocations = 0})).summary.failure
    == "worker/0 on GPU:0: out of memory of the GPU. Batches of this size take 1 MB there in "
       "all");
  for (const std::size_t products : {0, 6})
    BOOST_TEST(contains(train(job, 1, gpus(1, {.products = products})).summary.failure,
                        "worker/0 on GPU:0: a product of matrices failed"));
}

// On the real scheduler. One worker, because one thread at a time may use the simulator.
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
  BOOST_TEST(contains(run.summary.failure, "the first tensor that is not: "));
}

BOOST_AUTO_TEST_SUITE_END()
