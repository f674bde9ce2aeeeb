#include "tests/actors/devices/gpu_jobs.hpp"

#include "actors/checkpoint/resume.hpp"
#include "actors/model/model_file.hpp"
#include "actors/simulation/simulation.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/formats/file.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <utility>

namespace troupe::test {

namespace {

class faulty_device final : public simulated_device {
public:
  explicit faulty_device(const faults& when) : simulated_device(when.order), left_(when) {}

  void* allocate(std::size_t bytes) override {
    if (left_.allocations-- == 0)
      throw device_error("out of memory of the GPU");
    return simulated_device::allocate(bytes);
  }
  void multiply(cuda::stream where, const cuda::product& x) override {
    if (left_.products == 0)
      throw device_error("a product of matrices failed");
    --left_.products;
    simulated_device::multiply(where, x);
  }
  void copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    if (left_.copies-- == 0)
      throw device_error("a copy from the GPU failed");
    simulated_device::copy_out(where, to, from, bytes);
  }
  void copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    if (left_.copies_in-- == 0)
      throw device_error("a copy to the GPU failed");
    simulated_device::copy_in(where, to, from, bytes);
  }

private:
  faults left_;
};

} // namespace

std::shared_ptr<const gpu_set> gpus(std::size_t count, const faults& when) {
  const auto opens = std::make_shared<std::size_t>(when.opens);
  return cuda::make_gpus([count, when, opens](std::size_t index) -> std::unique_ptr<cuda::device> {
    if (index >= count)
      throw device_error("there is no GPU " + std::to_string(index) + ": this machine has "
                         + std::to_string(count) + ", counted from 0");
    if ((*opens)-- == 0)
      throw device_error("the GPU does not answer");
    auto result = std::make_unique<faulty_device>(when);
    result->gpu = index;
    result->has_peers = !when.no_peers;
    return result;
  });
}

proto::Job job_with(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> changes{
    model,       "data.digits={train: 24 test: 8}", "data.batch=5",
    "epochs=2",  "learning_rate={base: 0.05}",      "runtime.bucket_bytes=1024",
    "output=out"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

outcome train(const proto::Job& job, std::size_t workers, std::shared_ptr<const gpu_set> devices,
              std::uint64_t seed, bool evaluator, bool one_node) {
  simulation_options options;
  options.seed = seed;
  options.evaluator = evaluator;
  options.one_node = one_node;
  options.job = job;
  options.data = build_data(job);
  options.workers = workers;
  options.ps = traits_of(job).uses_shards() ? 2 : 0;
  options.gpus = std::move(devices);
  const auto before = launches();
  simulation sim{options};
  outcome result;
  const auto end = sim.run();
  result.summary = end.summary;
  for (const auto& node : end.nodes)
    BOOST_TEST(node.has_value()); // the node ended normally, even if a device failed
  result.launches = launches() - before;
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

traffic traffic_of(const proto::Job& job, std::size_t workers, bool one_node) {
  const auto all = std::make_shared<traffic>();
  const std::shared_ptr<const gpu_set> devices =
    cuda::make_gpus([all](std::size_t) -> std::unique_ptr<cuda::device> {
      return std::make_unique<counting_device>(3, all);
    });
  const auto run = train(job, workers, devices, 1, false, one_node);
  BOOST_TEST(run.summary.failure == "");
  BOOST_TEST(distance(run.weights, train(job, workers, gpus(1)).weights) == 0);
  return *all;
}

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

std::shared_ptr<const checkpoint> load(memory_storage& files, const proto::Job& job,
                                       const std::string& name) {
  const auto folder = checkpoint_folder("out") / name;
  return std::make_shared<checkpoint>(
    fit_checkpoint(read_checkpoint(files, folder), *context_of(job)));
}

} // namespace troupe::test
