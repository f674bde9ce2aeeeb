#include "kernels/cuda/device.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gpu_architecture.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/cuda/out_of_memory.hpp"
#include "kernels/cuda/updater.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// How executors and updaters use a device, and how they report its failures.

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_device)

namespace {

/// The text of the simulation_error or device_error, or "(no error)".
std::string fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const simulation_error& error) {
    return error.what();
  } catch (const cuda::device_error& error) {
    return error.what();
  }
  return "(no error)";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

// -- numbers of elements

BOOST_AUTO_TEST_CASE(quotients_are_exact) {
  constexpr std::size_t limit = std::size_t{1} << 31;
  for (const std::size_t d : {std::size_t{1},     std::size_t{2},
                              std::size_t{3},     std::size_t{5},
                              std::size_t{7},     std::size_t{10},
                              std::size_t{31},    std::size_t{32},
                              std::size_t{33},    std::size_t{97},
                              std::size_t{255},   std::size_t{256},
                              std::size_t{257},   std::size_t{641},
                              std::size_t{65535}, std::size_t{65536},
                              std::size_t{65537}, (std::size_t{1} << 30) + 1,
                              limit - 1,          limit}) {
    const cuda::divider quick{d, limit};
    const auto check = [&](const cuda::divider& by, std::size_t x) {
      const auto [quotient, rest] = by(x);
      if (quotient != x / d || rest != x % d)
        BOOST_ERROR(x << " / " << d << " gave " << quotient << ", " << rest);
    };
    for (std::size_t k = 0; k < 3000; ++k) {
      const auto multiple = k * 715827 / d * d; // up to 2^31
      for (const auto x : {k, multiple, multiple + d - 1, limit - 1 - k})
        if (x < limit)
          check(quick, x);
    }
    // Larger numbers need products of 64 bits.
    const cuda::divider exact{d, limit + 1};
    for (const std::size_t x :
         {std::size_t{0}, limit, limit + 1, limit * 97 + 5, (std::size_t{1} << 63) - 1,
          (std::size_t{1} << 62) / d * d, (std::size_t{1} << 62) / d * d - 1,
          std::size_t{999'999'999'999'999'989}})
      check(exact, x);
  }
  const cuda::divider wide{(std::size_t{1} << 40) + 1, std::size_t{1} << 50};
  BOOST_TEST(wide((std::size_t{1} << 40) + 4).rest == 3U);
  BOOST_TEST(cuda::divider(0, 0).divisor() == 1U);
}

BOOST_AUTO_TEST_CASE(gpus_without_code_are_refused) {
  BOOST_TEST(cuda::refusal_of(8, 0) == "");
  BOOST_TEST(cuda::refusal_of(9, 0) == "");
  BOOST_TEST(cuda::refusal_of(12, 0) == "");
  BOOST_TEST(cuda::refusal_of(7, 5)
             == "has compute capability 7.5, and this program needs 8.0 (A100) or newer. Use "
                "another GPU, or the CPU");
}

// -- products

BOOST_AUTO_TEST_CASE(products) {
  with_all_devices([](simulated_device& gpu) { check_products(gpu); });
}

BOOST_AUTO_TEST_CASE(arguments_that_cublas_refuses) {
  const device_array<float> memory(std::vector<float>(64, 1.0F));
  cuda::product x{.m = 3, .n = 2, .k = 5};
  x.a = x.b = memory.data();
  x.c = memory.data() + 32;
  BOOST_TEST(fault_of([&] { run_gemm(x, cuda::gemm_of(x)); }) == "(no error)");
  const auto refused = [&](const std::function<void(cuda::gemm_call&)>& change) {
    auto call = cuda::gemm_of(x);
    change(call);
    return has(fault_of([&] { run_gemm(x, call); }), "a product that cuBLAS refuses");
  };
  BOOST_TEST(refused([](auto& y) { y.a.lead = 1; }));
  BOOST_TEST(refused([](auto& y) { y.b.lead = 4; }));
  BOOST_TEST(refused([](auto& y) { y.c_lead = 1; }));
  BOOST_TEST(refused([](auto& y) { y.b.lead = y.k = 0; }));
  BOOST_TEST(refused([](auto& y) { y.k = -1; }));
  x.k = 0; // without terms, a distance between rows must still be at least 1
  BOOST_TEST(fault_of([&] { run_gemm(x, cuda::gemm_of(x)); }) == "(no error)");
  BOOST_CHECK_THROW(cuda::gemm_of({.m = std::size_t{1} << 31, .n = 1, .k = 1}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(tf32_only_if_asked) {
  model m;
  build_classifier(m);
  m.draw(33, 5);
  const auto what = m.plan_for(cuda::gpu_plan_options(), 33);
  simulated_device gpu;
  const auto loss_with = [&](const gpu_options& how) {
    cuda::executor there(gpu, what, how);
    return run(m, there).result.loss;
  };
  const auto exact = loss_with({});
  const auto rounded = loss_with({.tf32 = true});
  BOOST_TEST(rounded != exact);
  // Each of the four layers may add a relative error of 2^-11.
  BOOST_TEST(std::fabs(rounded - exact) <= 4 * 0x1p-11 * std::fabs(exact));
}

// -- what needs what

BOOST_AUTO_TEST_CASE(only_products_need_their_library) {
  const auto gpu = std::make_shared<simulated_device>();
  cuda::updater shard(gpu, {.elements = 3, .slots = 1});
  BOOST_TEST(!gpu->has_products());
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 4});
  m.fetches = {tanh(x)};
  const cuda::executor chain(*gpu, m.plan_for(cuda::gpu_plan_options(), 2));
  BOOST_TEST(!gpu->has_products());
  m.fetches = {dense(x, m.g.variable("w", {2, 4}))};
  const cuda::executor products(*gpu, m.plan_for(cuda::gpu_plan_options(), 2));
  BOOST_TEST(gpu->has_products());
  BOOST_TEST(!gpu->needs_epilogues());
  m.fetches = {dense_layer(x, "gelu", 2, activation::gelu)};
  const cuda::executor without(*gpu, m.plan_for(cuda::gpu_plan_options(), 2));
  BOOST_TEST(!gpu->needs_epilogues());
  m.fetches = {dense_layer(x, "relu", 2, activation::relu)};
  const cuda::executor with(*gpu, m.plan_for(cuda::gpu_plan_options(), 2));
  BOOST_TEST(gpu->needs_epilogues());
  simulated_device other;
  const auto z = m.g.placeholder("z", {shape::batch, 3, 2});
  m.fetches = {rnn(z, m.g.variable("v", {2, 2}))};
  const cuda::executor recurrence(other, m.plan_for(cuda::gpu_plan_options(), 2));
  BOOST_TEST(other.has_products());
}

BOOST_AUTO_TEST_CASE(some_gpus_of_a_machine) {
  std::vector<std::size_t> opened;
  const auto open = [&](std::size_t index) -> std::unique_ptr<cuda::device> {
    opened.push_back(index);
    return std::make_unique<simulated_device>();
  };
  const auto some = cuda::make_gpus(open, {5, 2});
  some->name(0);
  some->name(1);
  BOOST_TEST(opened == (std::vector<std::size_t>{5, 2}), boost::test_tools::per_element());
  BOOST_TEST(has(fault_of([&] { some->name(2); }), "there is no GPU 2: this process has 2 of the"));
  cuda::make_gpus(open, {})->name(7);
  BOOST_TEST(opened.back() == 7U);
}

// -- rules that the simulated device checks

BOOST_AUTO_TEST_CASE(a_thread_that_has_not_entered) {
  simulated_device gpu;
  std::string other_thread;
  std::string after_entering;
  std::thread([&] {
    other_thread = fault_of([&] { gpu.make_event(); });
    gpu.enter();
    after_entering = fault_of([&] { gpu.release(gpu.allocate(8)); });
  }).join();
  BOOST_TEST(other_thread == "a thread uses a device that it has not entered");
  BOOST_TEST(after_entering == "(no error)");
  simulated_device second;
  BOOST_TEST(has(fault_of([&] { gpu.allocate(8); }), "not entered"));
  BOOST_TEST(
    has(fault_of([&] { cuda::fill_zero(gpu.main_stream(), 1, static_cast<float*>(nullptr)); }),
        "not entered"));
  gpu.enter();
  BOOST_TEST(fault_of([&] { gpu.release(gpu.allocate(8)); }) == "(no error)");
}

// Functions and destructors must enter the device first, because the thread may have entered
// another device since.
BOOST_AUTO_TEST_CASE(executors_and_updaters_enter_their_device) {
  model m;
  build_classifier(m);
  m.draw(7, 5);
  const auto gpu = std::make_shared<simulated_device>(1);
  auto there = std::make_unique<cuda::executor>(*gpu, m.plan_for(cuda::gpu_plan_options(), 7));
  auto shard = std::make_unique<cuda::updater>(gpu, updater_sizes{.elements = 3, .slots = 1});
  const simulated_device other;
  run(m, *there);
  std::thread([&] {
    run(m, *there);
    shard->state(0);
  }).join();
  std::thread([&] { there = nullptr; }).join();
  shard = nullptr;
}

BOOST_AUTO_TEST_CASE(what_a_recording_does_not_take) {
  for (const auto& call : std::vector<std::function<void(simulated_device&)>>{
         [](auto& gpu) { gpu.allocate(8); }, [](auto& gpu) { gpu.allocate_pinned(8); },
         [](auto& gpu) { gpu.synchronize(gpu.copy_stream()); },
         [](auto& gpu) { gpu.make_event()->record(gpu.copy_stream()); },
         [](auto& gpu) { gpu.begin_recording(gpu.upload_stream()); }})
    with_all_devices([&](simulated_device& gpu) {
      gpu.begin_recording(gpu.main_stream());
      BOOST_TEST(has(fault_of([&] { call(gpu); }), "while a stream is recorded"));
      gpu.end_recording(gpu.main_stream());
    });
  simulated_device gpu;
  gpu.begin_recording(gpu.main_stream());
  BOOST_TEST(has(fault_of([&] { gpu.multiply(gpu.main_stream(), {}); }), "prepare_products"));
  // Here, products are prepared, but not their epilogues (functions that are fused with a product).
  gpu.end_recording(gpu.main_stream());
  gpu.prepare_products(false);
  gpu.begin_recording(gpu.main_stream());
  const cuda::product fused{.m = 1, .n = 1, .k = 1, .after = operation::relu};
  BOOST_TEST(has(fault_of([&] { gpu.multiply(gpu.main_stream(), fused); }), "prepare_products"));
  BOOST_TEST(has(fault_of([&] { gpu.fuses(fused); }), "prepare_products"));
}

// -- failures

namespace {

/// Makes one call of a function fail: call number `left`, counted from 1. If `left` is 0, no call
/// fails. Later calls succeed again, unless `lasts` is true.
struct failure {
  std::size_t left = 0;
  bool lasts = false;

  void count(const char* what) {
    if (left == 0 || --left > 0)
      return;
    left = lasts ? 1 : 0;
    throw cuda::device_error(what);
  }
};

class failing_device final : public simulated_device {
public:
  failing_device() : simulated_device(1) {}

  void multiply(cuda::stream where, const cuda::product& x) override {
    product.count("a product failed");
    auto what = x;
    what.m = rows.value_or(what.m);
    simulated_device::multiply(where, what);
  }
  void synchronize(cuda::stream where) override {
    wait.count("a kernel failed");
    simulated_device::synchronize(where);
  }
  std::unique_ptr<cuda::event> make_event() override {
    struct failing_event final : cuda::event {
      void record(cuda::stream where) override { inner->record(where); }
      void hold(cuda::stream where) override { inner->hold(where); }
      void wait() override {
        fails->count("a kernel failed");
        inner->wait();
      }
      std::unique_ptr<cuda::event> inner;
      failure* fails = nullptr;
    };
    auto result = std::make_unique<failing_event>();
    result->inner = simulated_device::make_event();
    result->fails = &wait;
    return result;
  }

  void begin_recording(cuda::stream where) override {
    begin.count("recording a CUDA graph: not permitted");
    simulated_device::begin_recording(where);
  }
  std::unique_ptr<cuda::recording> end_recording(cuda::stream where) override {
    auto result = simulated_device::end_recording(where);
    end.count("a CUDA graph: out of memory");
    return result;
  }

  failure product;
  failure wait;
  failure begin;
  failure end;
  /// The number of rows of each product. By default, the caller's number.
  std::optional<std::size_t> rows;
};

/// Runs a classifier on a device that fails.
struct failing_run {
  explicit failing_run(const gpu_options& how = {}) {
    build_classifier(m);
    m.draw(33, 5);
    there = std::make_unique<cuda::executor>(gpu, m.plan_for(cuda::gpu_plan_options(), 33), how);
  }
  std::string fault() {
    return fault_of([&] { run(m, *there); });
  }

  model m;
  failing_device gpu;
  std::unique_ptr<cuda::executor> there;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_launch_that_fails_names_its_layer) {
  failing_run x;
  x.gpu.product.left = 1;
  const auto text = x.fault();
  BOOST_TEST(text.starts_with("a product failed, in \"dense_1"), text);
  BOOST_TEST(text.ends_with("(matmul) with 33 rows"), text);
}

// During a recording, no kernels may be loaded. So a segment of a plan is recorded only after this
// segment has run successfully.
BOOST_AUTO_TEST_CASE(a_run_that_failed_does_not_count_as_the_first) {
  failing_run x;
  x.gpu.product.left = 1;
  BOOST_TEST(x.fault() != "(no error)");
  BOOST_TEST(x.fault() == "(no error)");
  BOOST_TEST(x.gpu.recordings() == 0U);
  BOOST_TEST(x.fault() == "(no error)");
  BOOST_TEST(x.gpu.recordings() > 1U);
}

// A recording can fail: for example, it may need memory that the GPU does not have. This part of
// the step then runs without a recording. The next run records it again.
BOOST_AUTO_TEST_CASE(a_part_whose_recording_fails_runs_without_it) {
  for (const auto which :
       {&failing_device::begin, &failing_device::product, &failing_device::end}) {
    failing_run x;
    const auto expected = run(x.m, *x.there);
    const auto same = [&] {
      const auto found = run(x.m, *x.there);
      return same_bits(found.gradient, expected.gradient)
        && found.result.loss == expected.result.loss
        && found.result.correct == expected.result.correct
        && found.result.counted == expected.result.counted;
    };
    (x.gpu.*which).left = 1;
    BOOST_TEST(same());
    BOOST_TEST(x.gpu.replays() == 3U); // of four parts
    BOOST_TEST(same());
    BOOST_TEST(x.gpu.replays() == 3U + 4U);
    const auto recordings = x.gpu.recordings();
    BOOST_TEST(same());
    BOOST_TEST(x.gpu.recordings() == recordings);
  }
}

// After three failures, a part is not recorded again for batches of this size.
BOOST_AUTO_TEST_CASE(recordings_that_always_fail) {
  failing_run x;
  x.gpu.end = {.left = 1, .lasts = true};
  bool noticed = false;
  for (const std::size_t recordings : {0, 4, 8, 12, 12, 12}) { // of four parts
    BOOST_TEST(x.there->take_notice() == "");
    BOOST_TEST(x.fault() == "(no error)");
    BOOST_TEST(x.gpu.recordings() == recordings);
    if (recordings == 12 && !std::exchange(noticed, true))
      BOOST_TEST(x.there->take_notice().starts_with("steps are not recorded as a CUDA graph"));
  }
  BOOST_TEST(x.gpu.replays() == 0U);
  // Batches of another size have recordings of their own.
  x.gpu.end.left = 0;
  x.m.draw(7, 5);
  for (const std::size_t replays : {0, 4, 8}) {
    BOOST_TEST(x.fault() == "(no error)");
    BOOST_TEST(x.gpu.replays() == replays);
  }
}

// If the launches fail, too, the run ends with their error.
BOOST_AUTO_TEST_CASE(a_launch_that_fails_with_and_without_a_recording) {
  failing_run x;
  BOOST_TEST(x.fault() == "(no error)");
  x.gpu.product = {.left = 1, .lasts = true};
  const auto text = x.fault();
  BOOST_TEST(text.starts_with("a product failed, in \"dense_1"), text);
  BOOST_TEST(text.ends_with("(matmul) with 33 rows"), text);
  x.gpu.product.left = 0;
  BOOST_TEST(x.fault() == "(no error)");
  BOOST_TEST(x.gpu.replays() == 4U);
}

// Sizes that a kernel or cuBLAS cannot take end the job like a failure of the device.
BOOST_AUTO_TEST_CASE(sizes_that_are_too_large_name_their_layer) {
  failing_run x;
  x.gpu.rows = std::size_t{1} << 31;
  const auto text = x.fault();
  BOOST_TEST(text.starts_with("a matrix has too many rows or columns for a product: 2147483648, in "
                              "\"dense_1"),
             text);
  BOOST_TEST(text.ends_with("(matmul) with 33 rows; use a CPU for this model"), text);
}

BOOST_AUTO_TEST_CASE(what_is_said_about_memory) {
  const std::string advice = ". Use a smaller batch or model, or end other programs";
  BOOST_TEST(cuda::out_of_memory("X", 33'554'432, 5'000'000, 80'000'000'000)
             == "out of memory of the GPU X: 33 MB are needed at once, 5 MB of 80000 MB are free"
               + advice);
  BOOST_TEST(cuda::out_of_memory("", 0, 5'000'000, 80'000'000'000)
             == "out of memory of the GPU: 5 MB of 80000 MB are free" + advice);
  BOOST_TEST(cuda::out_of_memory("X", 33'554'432, 0, 0)
             == "out of memory of the GPU X: 33 MB are needed at once" + advice);
  BOOST_TEST(cuda::out_of_memory("", 0, 0, 0) == "out of memory of the GPU" + advice);
  simulated_device gpu;
  gpu.largest_allocation = 2'000'000;
  BOOST_TEST(fault_of([&] { gpu.allocate(3'000'000); })
             == "out of memory of the GPU simulated: 3 MB are needed at once, 2 MB of 2 MB are free"
               + advice);
}

// The host waits once for each part of a step, after it has submitted all parts. A wait that fails
// does not show which of the submitted parts has failed. It cannot be a part for which the host has
// already waited.
BOOST_AUTO_TEST_CASE(a_failure_noticed_later_names_the_parts_of_the_step) {
  for (const std::size_t part : {1, 2, 3, 4}) {
    failing_run x;
    x.gpu.wait.left = part;
    const auto text = x.fault();
    const auto first = std::to_string(part);
    BOOST_TEST(text.starts_with("a kernel failed, in "
                                + (part < 4 ? "parts " + first + " to 4" : "part 4")
                                + " of 4 of a step with 33 rows, from \""),
               text);
    BOOST_TEST(has(text, ", from \"dense_1\" (matmul) to ") == (part == 1), text);
    BOOST_TEST(text.ends_with(". runtime { check_kernels: true } finds the operation"), text);
  }
}

// If the gradient stays on the device, the step has only one part.
BOOST_AUTO_TEST_CASE(a_failure_of_a_run_without_copies_names_the_step) {
  failing_run x;
  const auto feeds = x.m.feeds();
  const auto pointers = x.m.pointers();
  run_arguments<float> arguments;
  arguments.rows = x.m.values.rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  x.gpu.wait.left = 1;
  const auto text = fault_of([&] { x.there->run(arguments); });
  BOOST_TEST(text.starts_with("a kernel failed, in part 1 of 1 of a step with 33 rows, from \""),
             text);
  BOOST_TEST(has(text, ", from \"dense_1\" (matmul) to "), text);
}

// Before the host reads its sums over samples, it waits for all submitted work.
BOOST_AUTO_TEST_CASE(a_failure_before_sums_over_workers_names_the_parts) {
  model m;
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = dense_layer(x, "dense", 3);
  const auto state = parameter_kind::state;
  m.loss =
    sum(batch_norm(y,
                   {g.variable("gain", {3}), g.variable("bias", {3}),
                    g.variable("mean", {3}, {}, state), g.variable("variance", {3}, {}, state)},
                   1e-5, true));
  m.draw(5, 4);
  failing_device gpu;
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 5));
  const auto feeds = m.feeds();
  const auto pointers = m.pointers();
  std::vector<float> gradient(m.g.parameters().size());
  const auto on_sums = [](std::span<const double>) {};
  run_arguments<float> arguments;
  arguments.rows = 5;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = gradient;
  arguments.on_sums = on_sums;
  gpu.wait.left = 1;
  const auto text = fault_of([&] { there.advance(arguments); });
  BOOST_TEST(text.starts_with("a kernel failed, in parts 1 to 2 of "), text);
  BOOST_TEST(has(text, " of a step with 5 rows, from \"dense\" (matmul) to \""), text);
}

BOOST_AUTO_TEST_CASE(check_kernels_names_the_operation) {
  failing_run x({.check_kernels = true});
  const auto before = x.gpu.waits();
  for (int i = 0; i < 3; ++i)
    BOOST_TEST(x.fault() == "(no error)");
  BOOST_TEST(x.gpu.recordings() == 0U);
  BOOST_TEST(x.gpu.waits() - before >= 3 * x.there->what().instructions().size());
  x.gpu.wait.left = 2;
  const auto text = x.fault();
  BOOST_TEST(text.starts_with("a kernel failed, in \""), text);
  BOOST_TEST(text.ends_with(") with 33 rows"), text);
}

BOOST_AUTO_TEST_CASE(an_update_that_fails_names_its_parameters) {
  const auto gpu = std::make_shared<failing_device>();
  cuda::updater shard(gpu, {.elements = 100}, 40);
  std::vector<float> weights(100, 1.0F);
  const std::vector<float> gradient(100, 1.0F);
  const update_part all{.where = {0, 100}, .rule = {}, .rate = 0.1};
  gpu->wait.left = 2;
  const auto text = fault_of([&] {
    shard.apply({.weights = weights, .gradient = gradient, .updated = weights, .parts = {&all, 1}});
  });
  BOOST_TEST(text.starts_with("a kernel failed, in the update of parameters "), text);
  BOOST_TEST(text.ends_with(" of 100"), text);
}

BOOST_AUTO_TEST_SUITE_END()
