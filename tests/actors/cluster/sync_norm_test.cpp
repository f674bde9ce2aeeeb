// Synchronized batch normalization (batch_norm.sync): the moments are computed over the batches of
// all workers.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(sync_norm)

namespace {

/// A model with two layers of synchronized batch normalization. The first one normalizes images.
std::string model(const std::string& sync) {
  return "model={ layer { name: \"images\" conv2d { filters: 3 kernel: 5 stride: 4 bias: false } } "
         "layer { name: \"first\" batch_norm { sync: "
    + sync
    + " } } layer { activation: TANH } layer { flatten {} } "
      "layer { name: \"rows\" dense { units: 8 bias: false } } "
      "layer { name: \"second\" batch_norm { sync: "
    + sync + " } } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
}

/// A job with 100 records in steps of 12, for one worker or divided among several. The last step of
/// an epoch has four records, so some workers have none.
proto::Job job_with(std::size_t workers, const std::vector<std::string>& more = {},
                    const std::string& sync = "true") {
  std::vector<std::string> changes{model(sync),
                                   "data.digits={train: 100 test: 20}",
                                   "data.batch=" + std::to_string(12 / workers),
                                   "epochs=2",
                                   "learning_rate={base: 0.05}",
                                   "protocol=RING",
                                   "runtime.bucket_bytes=1024",
                                   "output=out"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

struct outcome {
  run_summary summary;
  std::vector<float> weights;
};

outcome run(const proto::Job& job, std::size_t workers, std::size_t ps) {
  simulation sim{simulated(job, workers, ps)};
  outcome result;
  result.summary = sim.run().summary;
  BOOST_TEST_REQUIRE(result.summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto file = sim.files().contents("out/weights.safetensors");
  result.weights = read_model(as_byte_span(file), context->parameters(), "weights").weights;
  return result;
}

struct setting {
  std::vector<std::string> changes;
  std::size_t ps;
};

const std::vector<setting> settings{
  {{"protocol=RING"}, 0},
  {{"protocol=RING", "ring.shard_optimizer=true", "runtime.ring_chunk_bytes=64"}, 0},
  {{"protocol=SYNC_PS"}, 1},
  {{"protocol=SYNC_PS", "optimizer.clip_norm=1"}, 3}};

/// The first notice about a stall; empty if there is none.
std::string told(const simulation& x) {
  for (const auto& notice : x.seen().notices)
    if (notice.text.starts_with("nothing has moved for "))
      return notice.text;
  return {};
}

} // namespace

// Several workers get the same weights as one worker that trains all samples. The running
// statistics are the same, too.
BOOST_AUTO_TEST_CASE(several_workers_equal_one_with_all_samples) {
  for (const auto& [changes, ps] : settings) {
    const auto one = run(job_with(1, changes), 1, ps);
    const std::vector<double> expected(one.weights.begin(), one.weights.end());
    for (const std::size_t workers : {2, 3})
      BOOST_TEST_CONTEXT(changes.back() << ", " << workers << " workers") {
        const auto several = run(job_with(workers, changes), workers, ps);
        check_close(std::span<const float>{several.weights}, expected, 1e-5, 1e-6, "weights");
        BOOST_TEST(several.summary.samples == 200U);
        BOOST_TEST(several.summary.train_loss == one.summary.train_loss,
                   boost::test_tools::tolerance(1e-5));
        BOOST_TEST(several.summary.test_loss == one.summary.test_loss,
                   boost::test_tools::tolerance(1e-5));
        // Without synchronization, the result is different.
        const auto apart = run(job_with(workers, changes, "false"), workers, ps);
        BOOST_TEST(apart.summary.train_loss != one.summary.train_loss,
                   boost::test_tools::tolerance(1e-3));
      }
  }
}

BOOST_AUTO_TEST_CASE(one_worker_has_the_bits_of_a_plain_layer) {
  for (const auto& [changes, ps] : settings)
    BOOST_TEST(run(job_with(1, changes), 1, ps).summary.weights_sha256
               == run(job_with(1, changes, "false"), 1, ps).summary.weights_sha256);
}

BOOST_AUTO_TEST_CASE(all_ways_give_the_same_bits) {
  for (const auto& [changes, ps] : settings)
    for (const std::size_t workers : {2, 3})
      BOOST_TEST_CONTEXT(changes.back() << ", " << workers << " workers") {
        const auto job = job_with(workers, changes);
        const auto expected = run(job, workers, ps).summary.weights_sha256;
        const auto crew = static_cast<std::uint32_t>(workers);
        const auto servers = static_cast<std::uint32_t>(ps);
        for (const auto how : {way::here, way::processes}) {
          const auto x = train(how, job, crew, servers);
          BOOST_TEST(x.failure == "");
          BOOST_TEST(x.weights_sha256 == expected);
        }
        BOOST_TEST(simulate(simulated(job, workers, ps, 2)).summary.weights_sha256 == expected);
      }
}

// A gradient is the sum over several batches. The last gradient of an epoch has fewer batches, so
// some workers have none.
BOOST_AUTO_TEST_CASE(several_batches_per_gradient) {
  for (const auto& [changes, ps] : settings)
    BOOST_TEST_CONTEXT(changes.back()) {
      const auto job = [&](const std::string& batch, const std::string& count) {
        auto more = changes;
        more.insert(more.end(), {"data.batch=" + batch, "accumulate=" + count});
        return job_with(3, more);
      };
      const auto two = run(job("2", "2"), 3, ps).summary;
      BOOST_TEST(two.samples == 200U);
      BOOST_TEST(train_here(job("2", "2"), 3, static_cast<std::uint32_t>(ps)).weights_sha256
                 == two.weights_sha256);
      // With batches of half the size, the moments are computed over half as many samples. So the
      // weights differ.
      BOOST_TEST(two.weights_sha256 != run(job("4", "1"), 3, ps).summary.weights_sha256);
    }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_the_same_bits) {
  for (const auto& [changes, ps] : settings)
    BOOST_TEST_CONTEXT(changes.back()) {
      auto more = changes;
      more.emplace_back("checkpoint={every_steps: 1 keep: 40}");
      const auto job = job_with(2, more);
      auto options = simulated(job, 2, ps);
      options.files = std::make_shared<memory_storage>();
      const auto whole = simulate(options).summary;
      BOOST_TEST_REQUIRE(whole.failure == "");
      const auto context = make_job_context(job, shape_of(*options.data.train));
      for (const std::uint64_t step : {1, 8, 9, 13}) {
        auto how = simulated(job, 2, ps);
        how.resume = std::make_shared<checkpoint>(fit_checkpoint(
          read_checkpoint(*options.files, checkpoint_folder("out") / checkpoint_name(step)),
          *context));
        BOOST_TEST(simulate(how).summary.weights_sha256 == whole.weights_sha256);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite) {
  for (const auto& [changes, ps] : settings)
    BOOST_TEST_CONTEXT(changes.back()) {
      auto more = changes;
      more.insert(more.end(), {"learning_rate={base: 1e30}", "max_bad=2"});
      const auto x = simulate(simulated(job_with(3, more), 3, ps)).summary;
      BOOST_TEST(x.not_finite);
      BOOST_TEST(x.failure.find("is not finite") != std::string::npos, x.failure);
    }
}

// A worker crashes or stops at any point of its step. The others must not wait for its sums
// forever.
BOOST_AUTO_TEST_CASE(a_worker_is_lost) {
  some_cases chosen;
  for (const auto& [changes, ps] : settings)
    for (const bool politely : {true, false})
      for (auto when = 4000us; when < 9ms; when += 617us) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(changes.back() << (politely ? ", stop" : ", crash") << " after "
                                          << when.count() << " us") {
          simulation sim{simulated(job_with(3, changes), 3, ps)};
          sim.at(when, [&] {
            if (politely)
              sim.stop(sim.worker_node(2), "SIGTERM");
            else
              sim.crash(sim.worker_node(2));
          });
          const auto result = sim.run();
          BOOST_TEST(result.summary.failure.find("worker/2") != std::string::npos,
                     result.summary.failure);
          for (const auto& node : result.nodes)
            BOOST_TEST(node.has_value());
        }
      }
}

// A worker hangs before it sends its sums, and later its process ends. Until then, the other
// workers wait for these sums.
BOOST_AUTO_TEST_CASE(a_worker_hangs_in_the_forward_pass) {
  for (const auto& [changes, ps] : settings)
    for (const auto* const actor : {"troupe.trainer", ""})
      BOOST_TEST_CONTEXT(changes.back() << ", " << actor) {
        auto more = changes;
        more.emplace_back("epochs=100000");
        auto options = simulated(job_with(3, more), 3, ps);
        // When a worker begins a step, all gradients of the step before are complete. So worker 1
        // hangs before its next sums.
        std::function<void()> freeze;
        options.gradient_done = [&](std::size_t, std::chrono::nanoseconds now) {
          if (now > 1500ms && freeze)
            std::exchange(freeze, nullptr)();
          return now + 20ms;
        };
        simulation sim{options};
        freeze = [&] { sim.freeze(sim.worker_node(1), actor); };
        sim.at(4s, [&] { sim.crash(sim.worker_node(1)); });
        const auto result = sim.run();
        const auto notice = told(sim);
        const auto says = [&notice](const char* text) {
          return notice.find(text) != std::string::npos;
        };
        const bool computes = says("Root: worker/1 has been computing one gradient");
        BOOST_TEST(!freeze);
        BOOST_TEST((*actor != 0 ? computes : says("Root: worker/1 is paused")), notice);
        BOOST_TEST(notice.find("from worker/1") != std::string::npos, notice);
        BOOST_TEST(result.summary.failure.find("worker/1") != std::string::npos,
                   result.summary.failure);
        for (const auto& node : result.nodes)
          BOOST_TEST(node.has_value());
      }
}

BOOST_AUTO_TEST_SUITE_END()
