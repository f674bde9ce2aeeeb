#include "tests/kernels/cuda/simulated_streams.hpp"

#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/updater.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/forgetful_device.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

// Checks that the simulated streams find missing events, and that executors and updaters use no
// event without need.

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

namespace {

using pinned = buffer<int, memory_kind::pinned>;

constexpr std::size_t n = 64;
constexpr std::uint64_t seeds = 20;

/// Writes `value` to n elements.
void fill(stream where, const buffer<int>& to, int value) {
  const view<int> x{to.data(), n};
  launch(where, "fill", {1}, [x, value](const thread& t) {
    if (t.index() < n)
      x.store(t.index(), value);
  });
}

bool all_are(const pinned& x, int value) {
  return std::all_of(x.data(), x.data() + n, [&](int v) { return v == value; });
}

/// The text of the fault that f finds, or "(no error)".
template <class F>
std::string fault_of(F f) {
  try {
    f();
  } catch (const simulation_error& e) {
    return e.what();
  }
  return "(no error)";
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_streams)

BOOST_AUTO_TEST_CASE(only_events_order_two_streams) {
  for (const bool held : {true, false}) {
    std::size_t wrong = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      simulated_device gpu{seed};
      const buffer<int> there(gpu, n);
      const pinned here(gpu, n);
      const auto filled = gpu.make_event();
      const auto copied = gpu.make_event();
      fill(gpu.main_stream(), there, 1);
      gpu.synchronize(gpu.main_stream());
      fill(gpu.main_stream(), there, 2);
      filled->record(gpu.main_stream());
      if (held)
        filled->hold(gpu.copy_stream());
      gpu.copy_out(gpu.copy_stream(), here.data(), there.data(), there.bytes());
      copied->record(gpu.copy_stream());
      copied->wait();
      wrong += all_are(here, 2) ? 0 : 1;
    }
    BOOST_TEST((held ? wrong == 0 : wrong > 0), wrong << " of " << seeds);
  }
}

// Before the host waits for a copy, it does not see the result, even if the copy has already run.
BOOST_AUTO_TEST_CASE(results_are_available_after_a_wait) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    const auto where = gpu.main_stream();
    const buffer<int> there(gpu, n);
    const pinned here(gpu, n);
    const auto copied = gpu.make_event();
    fill(where, there, 1);
    gpu.copy_out(where, here.data(), there.data(), there.bytes());
    copied->record(where);
    gpu.synchronize(gpu.copy_stream());
    BOOST_TEST(all_are(here, static_cast<int>(0xa5a5a5a5)));
    copied->wait();
    BOOST_TEST(all_are(here, 1));
  }
}

// Each piece of work takes a microsecond. Marks and events take no time.
BOOST_AUTO_TEST_CASE(time_passes_with_work) {
  with_all_devices([](simulated_device& gpu) {
    const auto where = gpu.main_stream();
    const buffer<int> one(gpu, n);
    const buffer<int> other(gpu, n);
    const pinned here(gpu, n);
    const auto done = gpu.make_event();
    const auto begin = gpu.make_time_mark();
    const auto middle = gpu.make_time_mark();
    const auto end = gpu.make_time_mark();
    begin->record(where);
    middle->record(where);
    fill(where, one, 7);
    done->record(where);
    gpu.copy_inside(where, other.data(), one.data(), one.bytes());
    gpu.copy_out(where, here.data(), other.data(), other.bytes());
    end->record(where);
    BOOST_TEST(middle->seconds_since(*begin) == 0);
    BOOST_TEST(end->seconds_since(*middle) == 3e-6, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(all_are(here, 7)); // the host has waited for the mark
    gpu.begin_recording(where);
    BOOST_CHECK_THROW(end->record(where), simulation_error);
    gpu.end_recording(where);
  });
}

BOOST_AUTO_TEST_CASE(pinned_memory_belongs_to_its_copies) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    const auto where = gpu.main_stream();
    const buffer<int> there(gpu, n);
    const pinned here(gpu, n);
    std::fill_n(here.data(), n, 1);
    gpu.copy_in(where, there.data(), here.data(), there.bytes());
    here.data()[5] = 2;
    BOOST_TEST(fault_of([&] { gpu.synchronize(where); })
               == "the host has changed pinned memory before it waited for a copy");
    here.data()[5] = 1;
    gpu.synchronize(where);
    gpu.copy_out(where, here.data(), there.data(), there.bytes());
    gpu.copy_out(where, here.data(), there.data(), there.bytes());
    gpu.synchronize(where);
    BOOST_TEST(all_are(here, 1));
  }
  // Without an event, a copy may overwrite memory that another copy still reads.
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    const buffer<int> there(gpu, n);
    const buffer<int> other(gpu, n);
    const pinned here(gpu, n);
    fill(gpu.main_stream(), other, 3);
    gpu.synchronize(gpu.main_stream());
    std::fill_n(here.data(), n, 1);
    gpu.copy_in(gpu.main_stream(), there.data(), here.data(), there.bytes());
    const auto fault = fault_of([&] {
      gpu.copy_out(gpu.copy_stream(), here.data(), other.data(), other.bytes());
      gpu.synchronize(gpu.copy_stream());
    });
    if (fault != "(no error)")
      BOOST_TEST(fault == "a copy to pinned memory runs beside another copy of it");
    found += fault != "(no error)" ? 1 : 0;
    gpu.synchronize(gpu.copy_stream());
    gpu.synchronize(gpu.main_stream());
  }
  BOOST_TEST(found > 0U);
}

BOOST_AUTO_TEST_CASE(pinned_memory_outlives_its_copies) {
  simulated_streams streams(1, 0);
  auto& x = *static_cast<simulated_stream*>(streams.handle(0).handle);
  int from = 1;
  int to = 0;
  streams.copy_in(x, &to, &from, sizeof(int), [] {});
  BOOST_TEST(fault_of([&] { streams.check_free(&from, sizeof(int)); })
             == "pinned memory is freed while a copy of it is under way");
  streams.synchronize(x);
  streams.check_free(&from, sizeof(int));
  BOOST_TEST(to == 1);
}

// Copies numbers to the device and back. The source is not pinned memory, and changes after the
// call.
std::vector<int> copied_while_the_source_changes(simulated_device& gpu) {
  const auto where = gpu.main_stream();
  const buffer<int> there(gpu, n);
  std::vector<int> from(n, 1);
  gpu.copy_in(where, there.data(), from.data(), there.bytes());
  std::ranges::fill(from, 2);
  std::vector<int> to(n);
  gpu.copy_out(where, to.data(), there.data(), there.bytes());
  return to;
}

BOOST_AUTO_TEST_CASE(copies_of_other_memory) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    const auto found = copied_while_the_source_changes(gpu);
    BOOST_TEST(found == std::vector<int>(n, 1), boost::test_tools::per_element());
    BOOST_TEST(gpu.waits() == 2U);
  }
}

// A GPU may read memory that is not pinned after the call. A source that changes too early is then
// noticed.
BOOST_AUTO_TEST_CASE(copies_that_read_other_memory_late) {
  simulated_device gpu{0}; // all work runs when the host waits
  gpu.reads_late = true;
  const auto found = copied_while_the_source_changes(gpu);
  BOOST_TEST(found == std::vector<int>(n, 2), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_the_streams_refuse) {
  simulated_device gpu{0};
  const auto where = gpu.main_stream();
  const auto never = gpu.make_event();
  BOOST_TEST(fault_of([&] { never->wait(); })
             == "the host waits for an event that was never recorded");
  BOOST_TEST(fault_of([&] { never->hold(where); })
             == "a stream waits for an event that was never recorded");
  const buffer<int> there(gpu, n);
  const pinned here(gpu, n);
  gpu.begin_recording(where);
  const std::string text = "a copy, an event, a wait or an allocation while a stream is recorded";
  BOOST_TEST(fault_of([&] { gpu.copy_in(where, there.data(), here.data(), there.bytes()); })
             == text);
  BOOST_TEST(fault_of([&] { never->record(where); }) == text);
  BOOST_TEST(fault_of([&] { gpu.synchronize(where); }) == text);
  gpu.end_recording(where);
}

// A stream may wait for an event of another device.
BOOST_AUTO_TEST_CASE(only_events_order_two_devices) {
  for (const bool held : {true, false}) {
    std::size_t wrong = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      simulated_device writes{seed};
      const buffer<int> there(writes, n);
      const auto filled = writes.make_event();
      fill(writes.main_stream(), there, 1);
      writes.synchronize(writes.main_stream());
      fill(writes.main_stream(), there, 2);
      filled->record(writes.main_stream());
      {
        simulated_device reads{seed};
        const pinned here(reads, n);
        if (held)
          filled->hold(reads.main_stream());
        reads.copy_out(reads.main_stream(), here.data(), there.data(), there.bytes());
        reads.synchronize(reads.main_stream());
        wrong += all_are(here, 2) ? 0 : 1;
      }
      writes.enter();
    }
    BOOST_TEST((held ? wrong == 0 : wrong > 0), wrong << " of " << seeds);
  }
}

// -- the executor

namespace {

std::size_t segments_of(const plan& what) {
  std::set<std::size_t> ends;
  for (const auto& x : what.buckets())
    ends.insert(x.ready_after);
  return ends.size();
}

/// Makes two steps with different weights and feeds.
std::vector<results> two_steps(device& gpu, model& m, const std::shared_ptr<const plan>& what) {
  cuda::executor there(gpu, what);
  std::vector<results> out;
  for (std::uint64_t step = 0; step < 2; ++step) {
    m.draw(7, 5, step);
    out.push_back(run(m, there));
  }
  return out;
}

bool same(const std::vector<results>& a, const std::vector<results>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i].gradient, b[i].gradient) || a[i].result.loss != b[i].result.loss
        || a[i].result.correct != b[i].result.correct || a[i].result.counted != b[i].result.counted)
      return false;
  return true;
}

} // namespace

// For each segment of a step, the copy stream waits once, and the host waits once.
BOOST_AUTO_TEST_CASE(a_step_needs_every_wait_for_an_event) {
  model m;
  build_classifier(m);
  const auto what = m.plan_for(gpu_plan_options(), 7);
  check_all_are_needed(
    2 * 2 * segments_of(*what), [&](auto make) { return two_steps(*make(), m, what); }, same);
}

namespace {

/// A model with many feeds. A run without samples has fewer pieces of work than feeds, so it may
/// end before the copies of an announced batch.
void build_many_feeds(model& m) {
  auto x = m.g.placeholder("x", {shape::batch, 2});
  for (std::size_t i = 0; i < 40; ++i)
    x = x + m.g.placeholder("x" + std::to_string(i), {shape::batch, 2});
  const auto y = dense(x, m.g.variable("w", {2, 2}));
  m.loss = sum(multiply(y, y));
}

std::shared_ptr<const plan> classifier_plan() {
  model m;
  build_classifier(m);
  return m.plan_for(gpu_plan_options(), 33);
}

} // namespace

// The results have the same bits with and without announced batches. In some steps, the announced
// batch comes. In other steps, another batch comes, the same batch runs again, or the batch has
// another size. A recording contains the addresses of its feeds, so four rounds use the recordings.
BOOST_AUTO_TEST_CASE(announced_batches_give_the_same_bits) {
  const auto what = classifier_plan();
  std::vector<announcing_step> steps{{1, 2},        {2, 3},        {2, 3}, {3, 4}, {9, 4},
                                     {4, 5, 7, 33}, {5, 6, 33, 7}, {7, 8}, {8, 0}, {9, 9}};
  for (std::uint64_t i = 10; i < 18; ++i)
    steps.push_back({i, i + 1});
  auto silent = steps;
  for (auto& step : silent)
    step.next = 0;
  simulated_device reference;
  const auto expected = announced_steps(reference, what, silent);
  BOOST_TEST(reference.uploads() == 0U);
  for (const std::size_t known : {2, 1})
    with_all_devices([&](simulated_device& gpu) {
      const auto actual = announced_steps(gpu, what, steps, known);
      for (std::size_t i = 0; i < steps.size(); ++i)
        BOOST_TEST(same({actual[i]}, {expected[i]}), "step " << i);
      BOOST_TEST(gpu.uploads() == 15 * known);
    });
}

// The copies of announced feeds are submitted before the host waits for the first bucket. They use
// their own stream.
BOOST_AUTO_TEST_CASE(announced_feeds_are_copied_while_a_run_computes) {
  const auto what = classifier_plan();
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    cuda::executor there(gpu, what);
    model own;
    model next;
    for (auto* x : {&own, &next})
      build_classifier(*x);
    own.draw(7, 5, 1);
    next.draw(7, 5, 2);
    const auto feeds = own.feeds();
    const auto next_feeds = next.feeds();
    const auto pointers = own.pointers();
    std::vector<float> gradient(what->parameters().size());
    std::vector<std::size_t> copied;
    const auto on_bucket = [&](std::size_t) { copied.push_back(gpu.uploads()); };
    run_arguments<float> arguments;
    arguments.rows = 7;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    arguments.on_bucket = on_bucket;
    arguments.batch = 1;
    arguments.next = {2, 7, next_feeds};
    there.run(arguments);
    BOOST_TEST(copied.front() == 2U);
    BOOST_TEST(gpu.uploads() == 2U);
  }
}

// Feeds of at least 64 KiB that are already in pinned memory are copied directly from there. When a
// run has ended, the caller may change the batch that was announced for it, even if another batch
// came.
BOOST_AUTO_TEST_CASE(announced_feeds_in_pinned_memory) {
  constexpr std::size_t features = 2600; // 7 rows are more than 64 KiB
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, features});
  const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
  m.loss = softmax_cross_entropy(dense_layer(x, "dense", 5), labels);
  const auto what = m.plan_for(gpu_plan_options(), 7);
  m.draw(7, 5);
  const auto pointers = m.pointers();
  const auto heap = m.feeds();
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    const buffer<float, memory_kind::pinned> values(gpu, 7 * features);
    cuda::executor there(gpu, what);
    const auto run = [&](std::uint64_t batch, bool from_pinned, std::uint64_t next) {
      const std::vector<feed<float>> pinned_feeds{feed<float>(values.data()), heap[1]};
      std::vector<float> gradient(what->parameters().size());
      run_arguments<float> arguments;
      arguments.rows = 7;
      arguments.weights = pointers;
      arguments.feeds = from_pinned ? pinned_feeds : heap;
      arguments.gradient = gradient;
      arguments.batch = batch;
      arguments.next = {next, 7, pinned_feeds};
      const auto loss = there.run(arguments).loss;
      gradient.push_back(static_cast<float>(loss));
      return gradient;
    };
    std::ranges::copy(m.floats[0], values.data());
    const auto expected = run(1, false, 2);
    BOOST_TEST(same_bits(run(2, true, 0), expected)); // the announced batch
    std::fill_n(values.data(), values.size(), 0.5F);
    run(4, false, 5);
    run(6, false, 0); // another batch than the announced one
    std::ranges::copy(m.floats[0], values.data());
    BOOST_TEST(same_bits(run(7, true, 0), expected)); // not announced
  }
}

// One announced batch never runs. Another announced batch has too many rows.
BOOST_AUTO_TEST_CASE(announced_batches_that_do_not_come) {
  const auto what = classifier_plan();
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device gpu{seed};
    announced_steps(gpu, what, {{1, 2}});
    BOOST_TEST(gpu.uploads() == 2U);
    announced_steps(gpu, what, {{1, 2, 7, 34}});
    BOOST_TEST(gpu.uploads() == 2U);
  }
}

// The waits per segment are those of a_step_needs_every_wait_for_an_event. In addition, the main
// stream waits for the copy of an announced batch that comes.
BOOST_AUTO_TEST_CASE(announced_batches_that_come_need_every_wait) {
  model m;
  build_many_feeds(m);
  const auto what = m.plan_for(gpu_plan_options(), 7);
  check_all_are_needed(
    2 * 2 * segments_of(*what) + 1,
    [&](auto make) {
      return announced_steps(*make(), what, {{1, 2, 0, 7}, {2, 0}}, 41, build_many_feeds);
    },
    same);
}

// The host waits before it overwrites an announced batch in pinned memory, because its copy may be
// under way.
BOOST_AUTO_TEST_CASE(announced_batches_that_do_not_come_need_a_wait) {
  const auto what = classifier_plan();
  const std::vector<announcing_step> steps{{1, 2}, {3, 4}, {4, 0}};
  const auto segments = segments_of(*what);
  simulated_device at_once;
  const auto expected = announced_steps(at_once, what, steps);
  event_waits waits;
  forgetful_device gpu(0, waits);
  BOOST_TEST(same(announced_steps(gpu, what, steps), expected));
  // The main stream of the second step also waits for the announced batch: see
  // announced_feeds_in_pinned_memory.
  BOOST_TEST(waits.so_far == 3 * 2 * segments + 3);
  // The number of the host's wait before it overwrites the batch. This wait is in the second step,
  // after the waits of the copy stream.
  const auto wait = 3 * segments + 1;
  BOOST_TEST(is_missed(
    wait, [&](auto make) { return announced_steps(*make(), what, steps); },
    [&](const auto& x) { return same(x, expected); }));
}

// For each piece of an update, the copy stream waits once, and the host waits once.
BOOST_AUTO_TEST_CASE(an_update_needs_every_wait_for_an_event) {
  constexpr std::size_t parameters = 100;
  constexpr std::size_t pieces = 4;
  optimizer rule;
  rule.kind = optimizer_kind::momentum;
  const std::vector<update_part> parts{{{0, parameters}, parameter_kind::trainable, rule, 0.1, 0}};
  for (const bool apart : {false, true})
    check_all_are_needed(
      2 * 2 * pieces,
      [&](auto make) {
        const std::shared_ptr<simulated_device> gpu = make();
        updater there(gpu, {parameters, rule.slots() - (apart ? 1 : 0), apart, false},
                      parameters / pieces);
        auto weights = random_floats(parameters, "w");
        std::vector<float> moment(apart ? parameters : 0);
        std::vector<float> results;
        for (std::uint64_t step = 1; step <= 2; ++step) {
          const auto g = random_floats(parameters, "g " + std::to_string(step));
          const auto allocations = gpu->allocations();
          there.apply({.weights = weights,
                       .gradient = g,
                       .updated = weights,
                       .parts = parts,
                       .step = step,
                       .moment = moment,
                       .moment_step = apart ? step : 0});
          BOOST_TEST(gpu->allocations() == allocations);
          results.insert(results.end(), weights.begin(), weights.end());
          results.insert(results.end(), moment.begin(), moment.end());
        }
        return results;
      },
      [](const std::vector<float>& a, const std::vector<float>& b) { return same_bits(a, b); });
}

namespace {

/// A device on which one product fails.
class failing_device final : public simulated_device {
public:
  failing_device(std::uint64_t seed, std::size_t product)
    : simulated_device(seed), left_(product) {}

  void multiply(stream where, const product& x) override {
    if (left_-- == 0)
      throw device_error("a product failed");
    simulated_device::multiply(where, x);
  }

private:
  std::size_t left_;
};

} // namespace

// When the next run begins, copies of the failed run may still be under way.
BOOST_AUTO_TEST_CASE(a_run_after_a_failed_one) {
  model m;
  build_classifier(m);
  const auto what = m.plan_for(gpu_plan_options(), 7);
  simulated_device at_once;
  cuda::executor reference(at_once, what);
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (const std::size_t product : {0, 3, 8}) {
      failing_device gpu(seed, product);
      cuda::executor there(gpu, what);
      m.draw(7, 5, 1);
      BOOST_CHECK_THROW(run(m, there), device_error);
      m.draw(7, 5, 2);
      BOOST_TEST(same({run(m, there)}, {run(m, reference)}));
    }
}

// Recordings are submitted instead of kernels, and the host waits once for each bucket (part of the
// gradient). If the gradient stays on the device, there is one recording, and the host waits once.
BOOST_AUTO_TEST_CASE(what_a_step_costs) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_classifier(m);
    m.draw(33, 5);
    const auto what = m.plan_for(gpu_plan_options(), 33);
    const auto segments = segments_of(*what);
    BOOST_TEST(segments > 3U);
    BOOST_TEST(segments <= what->buckets().size());
    cuda::executor there(gpu, what);
    std::vector<float> gradient(m.g.parameters().size());
    const auto feeds = m.feeds();
    const auto pointers = m.pointers();
    run_arguments<float> arguments;
    arguments.rows = 33;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    for (const bool stays : {false, true})
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto parts = stays ? 1 : segments;
        const auto allocations = gpu.allocations();
        const auto waits = gpu.waits();
        const auto recordings = gpu.recordings();
        const auto replays = gpu.replays();
        arguments.seed = step;
        arguments.gradient = stays ? std::span<float>{} : std::span{gradient};
        there.run(arguments);
        BOOST_TEST(gpu.allocations() == allocations);
        BOOST_TEST(gpu.waits() == waits + parts);
        BOOST_TEST(gpu.recordings() == recordings + (step == 1 ? parts : 0));
        BOOST_TEST(gpu.replays() == replays + (step == 0 ? 0 : parts));
      }
  });
}

// In some orders, the caller gets a bucket (part of the gradient) long before the backward pass
// ends.
BOOST_AUTO_TEST_CASE(buckets_leave_while_the_backward_pass_goes_on) {
  std::size_t early = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    model m;
    build_classifier(m);
    m.draw(7, 5);
    simulated_device gpu{seed};
    cuda::executor there(gpu, m.plan_for(gpu_plan_options(), 7));
    std::vector<float> gradient(m.g.parameters().size());
    const auto feeds = m.feeds();
    const auto pointers = m.pointers();
    std::vector<std::size_t> kernels;
    const auto on_bucket = [&](std::size_t) { kernels.push_back(launches()); };
    run_arguments<float> arguments;
    arguments.rows = 7;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    arguments.on_bucket = on_bucket;
    there.run(arguments);
    BOOST_TEST(kernels.size() == there.what().buckets().size());
    early += kernels.front() + 5 < kernels.back() ? 1 : 0;
  }
  BOOST_TEST(early > 0U);
}

BOOST_AUTO_TEST_SUITE_END()
