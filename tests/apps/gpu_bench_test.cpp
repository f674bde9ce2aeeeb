#include "apps/troupe/bench/gpu_bench.hpp"

#include "apps/troupe/bench/gpu_report.hpp"
#include "apps/troupe/bench/gpu_runner.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>

using namespace troupe;
using namespace troupe::bench;
using troupe::test::simulated_device;

BOOST_AUTO_TEST_SUITE(gpu_bench)

namespace {

expression perceptron(expression x) {
  return dense_layer(dense_layer(x, "dense_1", 8, activation::relu), "dense_2", 3);
}

expression small_gpt(expression ids) {
  return transformer(
    ids, {.vocabulary = 5, .context = 4, .width = 8, .layers = 1, .heads = 2, .shares_head = true});
}

gpu_work small_work(dtype precision = dtype::float32) {
  return {
    .what = {"small", "", 6, 7, false, 1, 3, {.kind = optimizer_kind::momentum}, 0.05, perceptron},
    .precision = precision,
    .checked_batch = 4,
    .checked_steps = 3,
    .goal_eager = 5,
    .goal_graph = 1.2};
}

gpu_work small_gpt_work() {
  return {
    .what = {"small-gpt", "", 2, 4, true, 4, 5, {.kind = optimizer_kind::adamw}, 0.01, small_gpt},
    .checked_batch = 2,
    .checked_steps = 3};
}

gpu_bench_options small_options() {
  gpu_bench_options result;
  result.how = {.rounds = 3, .seconds = 1, .turns = 4};
  result.sizes.parameters = 1000;
  result.sizes.elements = 1100;
  result.sizes.columns = 33;
  result.sizes.copied = 700;
  result.sizes.pattern = 300;
  result.sizes.rotated_bytes = 1500;
  result.sizes.layers = {{5, 8, 9, dtype::float32, operation::relu},
                         {4, 8, 16, dtype::bfloat16, operation::relu},
                         {4, 8, 16, dtype::float16, operation::gelu},
                         {3, 5, 8, dtype::bfloat16, operation::end}};
  result.works = {small_work(), small_work(dtype::bfloat16), small_gpt_work()};
  // Runs workers one after the other, because only one thread at a time may use the simulator.
  result.together = [](std::span<const std::function<void()>> all) {
    for (const auto& f : all)
      f();
  };
  return result;
}

std::unique_ptr<cuda::device> open_simulated(std::size_t) {
  return std::make_unique<simulated_device>();
}

gpu_results run_one(const std::string& measure, gpu_bench_options options = small_options(),
                    const device_opener& open = open_simulated) {
  options.measures = {measure};
  return run_gpu_bench(open, options);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(lines, [&](const auto& x) { return has(x, text); });
}

/// A peer (a program to compare with) that trains on the CPU. A step takes two simulated
/// microseconds. It reports losses that are multiplied by a factor.
class cpu_peer final : public training_peer {
public:
  cpu_peer(const gpu_work& what, const material& data, double factor)
    : runner_(what.what, data, 1, passing::time, what.precision), factor_(factor) {}

  std::string name() const override { return "a test"; }
  bench::round run(std::size_t steps) override {
    auto result = runner_.run(steps);
    result.seconds = 2e-6 * static_cast<double>(steps);
    for (auto& x : result.losses)
      x *= factor_;
    return result;
  }

private:
  runner runner_;
  double factor_;
};

/// A device that computes wrong results, which the benchmark must find.
class wrong_device final : public simulated_device {
public:
  void multiply(cuda::stream where, const cuda::product& x) override {
    auto changed = x;
    changed.transpose_a = changed.m == changed.k && !changed.transpose_a;
    changed.after = operation::end;
    simulated_device::multiply(where, changed);
  }
  void copy_inside(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    simulated_device::copy_inside(where, to, from, bytes);
    if (bytes > 64)
      simulated_device::copy_inside(where, static_cast<std::byte*>(to) + 4, from, 4);
  }
};

/// A device that fails at its first matrix product. From then on, all waits report the error.
class broken_device final : public simulated_device {
public:
  void multiply(cuda::stream, const cuda::product&) override {
    broken_ = true;
    throw device_error{"illegal address"};
  }
  void synchronize(cuda::stream where) override {
    if (broken_)
      throw device_error{"illegal address"};
    simulated_device::synchronize(where);
  }

private:
  bool broken_ = false;
};

} // namespace

// In simulated time, a kernel, a copy and a product take a microsecond each.
BOOST_AUTO_TEST_CASE(memory) {
  const auto found = run_one("memory");
  BOOST_TEST(found.faults().empty());
  BOOST_TEST(found.missing.empty());
  BOOST_TEST(found.device == "simulated");
  BOOST_REQUIRE(found.memory.size() == 11U);
  const double copy_speed = 2 * 700 * 4 / 1e-6;
  for (const auto& x : found.memory) {
    BOOST_TEST(x.bytes > 0);
    BOOST_TEST(x.copy_speed == copy_speed, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(x.seconds.least <= x.seconds.median);
    BOOST_TEST(x.seconds.median <= x.seconds.most);
  }
  const auto& momentum = found.memory[2];
  BOOST_TEST(momentum.what == "update by SGD with momentum");
  BOOST_TEST(momentum.bytes == 5 * 1000 * 4);
  BOOST_TEST(momentum.seconds.median == 1e-6, boost::test_tools::tolerance(1e-9)); // one launch
  BOOST_TEST(momentum.ratio() == 20000 / 1e-6 / copy_speed, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(momentum.goal == 0.9);
  const auto& adamw = found.memory[3];
  BOOST_TEST(adamw.bytes == 7 * 1000 * 4);
  BOOST_TEST(adamw.seconds.median == 1e-6, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found.memory[4].bytes == 4 * 1100 * 4); // three inputs and a result
  BOOST_TEST(found.memory[5].bytes == 4 * 1100 * 2);
  BOOST_TEST(found.memory[6].elements == 33U * 33U);
  BOOST_TEST(found.memory[6].goal == 0.8);
  for (const auto* part : {"layers", "training", "workers"})
    BOOST_TEST(nlohmann::json::parse(gpu_json(found))[part].empty());
}

BOOST_AUTO_TEST_CASE(layers_beside_products) {
  const auto found = run_one("products");
  BOOST_TEST(found.faults().empty());
  BOOST_TEST(found.missing.empty());
  BOOST_REQUIRE(found.layers.size() == 4U);
  const double launches[] = {1, 2, 2, 2}; // see cuda_dense_product
  const bool fused[] = {true, true, false, true};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& x = found.layers[i];
    BOOST_TEST(x.seconds.median == 1e-6 * launches[i], boost::test_tools::tolerance(1e-9));
    BOOST_TEST(x.product_seconds.median == 1e-6, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(x.fused == fused[i]);
    BOOST_TEST(x.goal == 0.95);
  }
  BOOST_TEST(found.layers[0].flop() == 2 * 5 * 8 * 9);
}

BOOST_AUTO_TEST_CASE(training) {
  const auto found = run_one("training");
  BOOST_TEST(found.faults().empty());
  BOOST_TEST(found.missing.empty());
  BOOST_REQUIRE(found.training.size() == 3U);
  for (const auto& x : found.training) {
    BOOST_TEST(x.what.what.name.starts_with("small"));
    BOOST_TEST(x.speed.least > 0);
    BOOST_TEST(x.speed.least <= x.speed.median);
    BOOST_TEST(x.last_loss < x.first_loss); // all steps use the same four batches
    BOOST_TEST(x.difference <= (is_narrow(x.what.precision) ? 2e-2 : 1e-4));
    // In each step, the host waits only once, for the loss.
    BOOST_TEST(x.counts.allocations == 0U);
    BOOST_TEST(x.counts.recordings == 0U);
    BOOST_TEST(x.counts.waits == 3 * x.steps);
    BOOST_TEST(x.counts.replays == 3 * x.steps);
    BOOST_TEST(x.peers.empty());
  }
}

// A step is one recording, a launch that copies the weights of all buckets, and a launch that
// updates them.
BOOST_AUTO_TEST_CASE(steps_with_several_buckets) {
  auto wide = small_work().what;
  wide.build = [](expression x) {
    return dense_layer(dense_layer(dense_layer(x, "dense_1", 256, activation::relu), "dense_2", 256,
                                   activation::relu),
                       "dense_3", 3);
  };
  BOOST_TEST(gpu_training_plan(wide, dtype::float32)->buckets().size() == 2U);
  const material data(wide);
  simulated_device gpu;
  gpu_runner there(gpu, wide, dtype::float32, data);
  auto losses = there.run(4).losses; // both sets of feeds are recorded
  const auto replays = gpu.replays();
  const auto submissions = gpu.single_submissions();
  const auto more = there.run(2).losses;
  BOOST_TEST(gpu.replays() == replays + 2);
  BOOST_TEST(gpu.single_submissions() == submissions + 2 * 2);
  losses.insert(losses.end(), more.begin(), more.end());
  const auto expected = runner(wide, data, 1, passing::time, dtype::float32).run(6).losses;
  for (std::size_t i = 0; i < 6; ++i)
    BOOST_TEST(losses[i] == expected[i], boost::test_tools::tolerance(1e-4));
}

BOOST_AUTO_TEST_CASE(training_beside_a_peer) {
  auto options = small_options();
  options.works.resize(1);
  options.peer_modes = {"eager", "graph", "compile"};
  options.make_peer = [](const gpu_work& what, const material& data, const std::string& mode) {
    if (mode == "compile")
      throw peer_unavailable{"this peer compiles nothing"};
    return std::make_unique<cpu_peer>(what, data, mode == "graph" ? 1.5 : 1);
  };
  const auto found = run_one("training", options);
  BOOST_REQUIRE(found.training.size() == 1U);
  const auto& peers = found.training[0].peers;
  BOOST_REQUIRE(peers.size() == 3U);
  BOOST_TEST(peers[0].theirs.median == 6 / 2e-6, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(peers[0].ratio() == peers[0].ours.median / peers[0].theirs.median);
  BOOST_TEST(peers[0].fault.empty());
  BOOST_TEST(peers[0].goal == 5);
  BOOST_TEST(peers[1].difference >= 0.49); // relative to the first loss
  BOOST_TEST(peers[1].goal == 1.2);
  BOOST_REQUIRE(found.faults().size() == 1U);
  BOOST_TEST(has(found.faults()[0],
                 "small, graph: the losses of the first steps differ from "
                 "those of a test by "));
  const auto text = gpu_tables(found);
  BOOST_TEST(has(text, "not measured: small, compile: this peer compiles nothing"));
  BOOST_TEST(has(text, "(!)"));
  const auto json = nlohmann::json::parse(gpu_json(found));
  BOOST_TEST(json["training"][0]["peers"][0]["ratio"].get<double>() > 0);
  BOOST_TEST(json["training"][0]["peers"][2]["unavailable"] == "this peer compiles nothing");
}

BOOST_AUTO_TEST_CASE(workers_on_one_gpu) {
  std::size_t opened = 0;
  const auto found = run_one("workers", small_options(), [&](std::size_t i) {
    ++opened;
    return open_simulated(i);
  });
  BOOST_TEST(found.faults().empty());
  BOOST_REQUIRE(found.workers.size() == 1U);
  const auto& x = found.workers[0];
  BOOST_TEST(x.work == "small");
  BOOST_TEST(x.workers == 2U);
  BOOST_TEST(x.one.median > 0);
  BOOST_TEST(x.all.median > 0);
  BOOST_TEST(x.goal == 1.3);
  BOOST_TEST(opened == 3U); // each worker has its own streams
}

BOOST_AUTO_TEST_CASE(everything_is_reported) {
  auto options = small_options();
  options.works.resize(1);
  const auto found = run_gpu_bench(open_simulated, options);
  const auto text = gpu_tables(found);
  for (const auto* part :
       {"simulated; medians of 3 rounds", "update by AdamW", "layer normalization",
        "5 x 8 x 9, float32, relu", "small", "waits/step", "workers on one GPU"})
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  BOOST_TEST(!has(text, "(!)"));
  BOOST_TEST(!has(text, "not measured"));
  const auto json = nlohmann::json::parse(gpu_json(found));
  BOOST_TEST(json["memory"].size() == 11U);
  BOOST_TEST(json["layers"].size() == 4U);
  BOOST_TEST(json["training"][0]["waits_per_step"] == 1);
  BOOST_TEST(json["training"][0]["allocations_per_step"] == 0);
  BOOST_TEST(json["workers"][0]["workers"] == 2);
}

// A GPU that has failed is a fault, and not a part that cannot be measured.
BOOST_AUTO_TEST_CASE(a_gpu_that_fails_ends_the_measurements) {
  auto options = small_options();
  options.measures = {"products", "training"};
  const auto found =
    run_gpu_bench([](std::size_t) { return std::make_unique<broken_device>(); }, options);
  BOOST_TEST(found.failure == "products: the GPU has failed: illegal address");
  BOOST_TEST((found.faults() == std::vector<std::string>{found.failure}));
  BOOST_TEST(found.training.empty());
}

BOOST_AUTO_TEST_CASE(wrong_results_are_found) {
  auto options = small_options();
  options.sizes.layers = {{8, 8, 8, dtype::float32, operation::relu}};
  options.works.resize(1);
  options.works[0].what.inputs = 4; // as many as checked samples
  const auto found =
    run_gpu_bench([](std::size_t) { return std::make_unique<wrong_device>(); }, options);
  const auto faults = found.faults();
  BOOST_TEST(mentions(faults, "copy by the driver: element 1 is"));
  BOOST_TEST(mentions(faults, "update by AdamW: element"));
  BOOST_TEST(mentions(faults, "dense layer 8 x 8 x 8, float32: row 0, column"));
  BOOST_TEST(mentions(faults, "small: the losses of the first steps differ from those of the CPU"));
  BOOST_TEST(has(gpu_tables(found), "(!)"));
}

// If GPU memory is too small for a part of the benchmark, the output names this part. The other
// parts are measured.
BOOST_AUTO_TEST_CASE(too_little_memory) {
  auto options = small_options();
  options.sizes.parameters = 5000;
  options.works.resize(1);
  const auto found = run_gpu_bench(
    [](std::size_t) {
      auto result = std::make_unique<simulated_device>();
      result->largest_allocation = 16384;
      return result;
    },
    options);
  BOOST_TEST(mentions(found.missing, "update by AdamW: out of memory"));
  BOOST_TEST(mentions(found.missing, "update by SGD with momentum: out of memory"));
  BOOST_TEST(found.memory.size() == 9U);
  BOOST_TEST(found.layers.size() == 4U);
  BOOST_TEST(has(gpu_tables(found), "not measured: update by AdamW: out of memory"));
  const auto none = run_gpu_bench(
    [](std::size_t) {
      auto result = std::make_unique<simulated_device>();
      result->largest_allocation = 16;
      return result;
    },
    options);
  BOOST_TEST(mentions(none.missing, "memory: out of memory"));
  BOOST_TEST(mentions(none.missing, "dense layer of bfloat16: out of memory"));
  BOOST_TEST(mentions(none.missing, "small: out of memory"));
  BOOST_TEST(mentions(none.missing, "workers on one GPU: out of memory"));
}

BOOST_AUTO_TEST_CASE(what_a_device_cannot_do) {
  const auto found = run_gpu_bench(
    [](std::size_t) {
      auto result = std::make_unique<simulated_device>();
      result->refused_type = dtype::bfloat16;
      return result;
    },
    small_options());
  BOOST_TEST(
    mentions(found.missing, "dense layer of bfloat16: the GPU has no products of bfloat16"));
  BOOST_TEST(mentions(found.missing, "small: the GPU simulated has no products of bfloat16"));
  BOOST_TEST(found.training.size() == 2U);
  BOOST_CHECK_THROW(run_one("speed"), input_error);
  BOOST_CHECK_THROW(
    run_one("memory", small_options(),
            [](std::size_t) -> std::unique_ptr<cuda::device> { throw device_error("no driver"); }),
    device_error);
}

// All models that the command measures can be planned for a GPU. GPT-2 has its known number of
// parameters.
BOOST_AUTO_TEST_CASE(known_works) {
  std::vector<std::string> names;
  for (const auto& x : gpu_works()) {
    names.emplace_back(x.what.name);
    BOOST_TEST(x.checked_batch <= x.what.batch);
    BOOST_TEST(x.checked_steps > 0U);
    auto small = x.what;
    small.batch = 1;
    const auto what = gpu_training_plan(small, x.precision);
    BOOST_TEST(what->has_gradients());
    BOOST_TEST(cuda::executor::memory_bytes(*what)
               > cuda::product_bytes(*what) + 4 * what->parameters().size());
    if (x.what.name == "gpt2-small")
      BOOST_TEST(what->parameters().size() == 124439808U);
  }
  const std::vector<std::string> expected{"mlp-64", "mlp-4096", "cnn-256",
                                          "lstm",   "gpt",      "gpt2-small"};
  BOOST_TEST(names == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
