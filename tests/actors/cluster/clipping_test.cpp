// Updates that need norms of the whole gradient or of whole tensors, although each shard holds only
// a range: clipping by the norm of the gradient, and the optimizer LAMB.

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/sha256.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(clipping)

namespace {

/// A job with 130 samples in batches of 32. The last batch of an epoch has only 2 samples. If there
/// are several workers, some of them get no sample of it.
proto::Job small_job(proto::Protocol protocol, const std::vector<std::string>& more) {
  std::vector<std::string> changes{"data.digits={train: 130 test: 20}",
                                   "data.batch=32",
                                   "epochs=3",
                                   "model.layer[0].dense.units=20",
                                   "runtime.bucket_bytes=1000",
                                   "output=out",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  for (const auto& x : {equal_after_every_step(protocol), more})
    changes.insert(changes.end(), x.begin(), x.end());
  return example_job("digits_mlp", changes);
}

std::vector<float> weights_of(const simulation& run, const job_context& context) {
  const auto file = run.files().contents("out/weights.safetensors");
  return read_model(as_byte_span(file), context.parameters(), "weights").weights;
}

/// Checks that the weights of a run equal those of a serial loop, except for rounding: the workers
/// add up gradients in another order.
void check_weights(const proto::Job& job, std::size_t workers, std::size_t ps,
                   const std::vector<float>& expected) {
  simulation run{simulated(job, workers, ps)};
  BOOST_TEST(run.run().summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const std::vector<double> wide(expected.begin(), expected.end());
  check_close(std::span<const float>{weights_of(run, *context)}, wide, 1e-4, 1e-6, "weights");
}

std::vector<float> serial_weights(const proto::Job& job) {
  serial_training loop{job};
  loop.train();
  return loop.weights();
}

} // namespace

BOOST_AUTO_TEST_CASE(one_worker_clips_as_a_serial_loop) {
  for (const auto* const rule : {"MOMENTUM", "ADAMW"})
    for (const auto protocol : all_protocols) {
      const auto job = small_job(protocol,
                                 {"optimizer.clip_norm=0.5", "optimizer.kind=" + std::string{rule},
                                  "learning_rate.base=0.01"});
      const auto expected = serial_weights(job);
      for (const std::size_t ps : {1, 2, 5})
        BOOST_TEST_CONTEXT(rule << ", " << proto::Protocol_Name(protocol) << ", " << ps)
      check_weights(job, 1, ps, expected);
    }
}

// The bound of `clip_norm` is so large that no gradient exceeds it. The weights equal those of a
// job without clipping, bit for bit.
BOOST_AUTO_TEST_CASE(a_bound_that_is_never_met) {
  for (const auto protocol : all_protocols) {
    const auto expected = simulate(simulated(small_job(protocol, {}), 1, 3)).summary;
    const auto job = small_job(protocol, {"optimizer.clip_norm=1e30"});
    for (const auto how : all_ways)
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << how) {
        const auto result = train(how, job, 1, 3);
        BOOST_TEST(result.failure == "");
        BOOST_TEST(result.weights_sha256 == expected.weights_sha256);
      }
    const auto clipped = small_job(protocol, {"optimizer.clip_norm=0.1"});
    BOOST_TEST(simulate(simulated(clipped, 1, 3)).summary.weights_sha256
               != expected.weights_sha256);
  }
}

BOOST_AUTO_TEST_CASE(synchronous_steps_do_not_depend_on_timing) {
  for (const auto protocol : {proto::SYNC_PS, proto::RING}) {
    const auto job = small_job(protocol, {"optimizer.clip_norm=0.5"});
    const auto expected = simulate(simulated(job, 5, 3, 1)).summary;
    BOOST_TEST(expected.failure == "");
    for (std::uint64_t seed = 2; seed < 6; ++seed)
      BOOST_TEST(simulate(simulated(job, 5, 3, seed)).summary.weights_sha256
                 == expected.weights_sha256);
    BOOST_TEST(train_here(job, 5, 3).weights_sha256 == expected.weights_sha256);
  }
}

BOOST_AUTO_TEST_CASE(several_asynchronous_workers) {
  for (const auto* const bound : {"name=unbounded", "async_ps.max_staleness=2"}) {
    const auto job = small_job(proto::ASYNC_PS, {"optimizer.clip_norm=0.5", bound});
    const auto result = simulate(simulated(job, 4, 3)).summary;
    BOOST_TEST(result.failure == "");
    BOOST_TEST(result.samples == 390U);
    BOOST_TEST(result.split == 0U);
  }
}

// The shards exchange parts of the norm. A lost part is sent again, and a repeated part counts
// once.
BOOST_AUTO_TEST_CASE(parts_of_the_norm_that_are_lost_or_repeated) {
  const auto job =
    small_job(proto::SYNC_PS, {"optimizer.clip_norm=0.5", "runtime.request_timeout_ms=20"});
  const auto expected = simulate(simulated(job, 2, 3)).summary.weights_sha256;
  for (const auto what : {verdict::drop, verdict::duplicate}) {
    simulation run{simulated(job, 2, 3)};
    std::uint64_t seen = 0;
    std::uint64_t hits = 0;
    run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
      if (!content.match_elements<proto::Frame, caf::message>())
        return verdict::deliver;
      const auto& inner = content.get_as<caf::message>(1);
      if (inner.empty() || !inner.match_element<proto::PartialNorm>(0) || ++seen % 5 != 0)
        return verdict::deliver;
      ++hits;
      return what;
    });
    const auto result = run.run().summary;
    BOOST_TEST(result.failure == "");
    BOOST_TEST(result.weights_sha256 == expected);
    BOOST_TEST(hits > 5U);
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_a_checkpoint) {
  for (const auto protocol : all_protocols) {
    const auto job = small_job(protocol,
                               {"optimizer.clip_norm=0.5", "optimizer.kind=LAMB",
                                "checkpoint.every_steps=4", "checkpoint.keep=10"});
    auto recorded = simulated(job, 1, 3);
    recorded.files = std::make_shared<memory_storage>();
    simulation whole{recorded};
    const auto expected = whole.run().summary;
    BOOST_TEST(expected.failure == "");
    auto options = simulated(job, 1, 3);
    const auto context = make_job_context(job, shape_of(*options.data.train));
    options.resume = std::make_shared<checkpoint>(
      fit_checkpoint(read_checkpoint(*recorded.files, "out/checkpoints/step-00000008"), *context));
    const auto resumed = simulate(options).summary;
    BOOST_TEST(resumed.failure == "");
    BOOST_TEST(resumed.weights_sha256 == expected.weights_sha256);
  }
}

// LAMB needs the norm of each tensor, so each shard holds whole tensors. Some shards hold none.
BOOST_AUTO_TEST_CASE(lamb_has_the_bits_of_a_serial_loop) {
  for (const auto protocol : all_protocols) {
    const auto job = small_job(protocol, {"optimizer.kind=LAMB", "optimizer.weight_decay=0.01"});
    serial_training loop{job};
    loop.train();
    const auto expected = sha256_hex(std::span<const float>{loop.weights()});
    for (const std::uint32_t ps : {1, 3, 6})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << ps) {
        const auto options = simulated(job, 1, ps);
        const auto result = simulate(options);
        BOOST_TEST(result.summary.failure == "");
        BOOST_TEST(result.summary.weights_sha256 == expected);
        // The run ended before the deadline of its first request. So no request was repeated.
        BOOST_TEST(
          (result.virtual_time < std::chrono::milliseconds{job.runtime().request_timeout_ms()}));
      }
    BOOST_TEST(train_in_processes(job, 1, 3).weights_sha256 == expected);
  }
}

BOOST_AUTO_TEST_SUITE_END()
