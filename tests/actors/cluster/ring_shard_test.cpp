// Rings in which each worker holds only a part of the optimizer's state (ring.shard_optimizer).

#include "actors/checkpoint/resume.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(ring_shard)

namespace {

/// A job of 40 steps in 4 epochs for 1 to 4 workers. The ring sends the gradient in several buckets
/// (parts).
proto::Job forty_steps(bool divided, std::size_t workers,
                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"model.layer[0].dense.units=8",
                                   "data.digits={train: 150 test: 20}",
                                   "data.batch=" + std::to_string(16 / workers),
                                   "epochs=4",
                                   "output=out",
                                   "protocol=RING",
                                   "runtime.bucket_bytes=1024",
                                   "learning_rate={base: 0.02 cosine {}}",
                                   std::string{"ring.shard_optimizer="} + (divided ? "1" : "0")};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

const std::vector<std::string> optimizers{
  "{kind: SGD}",
  "{kind: MOMENTUM momentum: 0.9 weight_decay: 0.01}",
  "{kind: NESTEROV momentum: 0.9 clip_value: 0.5}",
  "{kind: ADAGRAD}",
  "{kind: RMSPROP momentum: 0.5}",
  "{kind: ADAM l1: 0.001}",
  "{kind: ADAMW weight_decay: 0.1 group { match: \"*.bias\" weight_decay: 0 }}"};

} // namespace

BOOST_AUTO_TEST_CASE(the_bits_of_a_ring_with_every_optimizer) {
  for (auto& rule : optimizers)
    for (const std::size_t workers : {1, 2, 3})
      BOOST_TEST_CONTEXT(rule << ", " << workers << " workers") {
        const std::vector<std::string> how{"optimizer=" + rule};
        const auto plain =
          simulate(simulated(forty_steps(false, workers, how), workers, 0)).summary;
        const auto divided =
          simulate(simulated(forty_steps(true, workers, how), workers, 0)).summary;
        BOOST_TEST(plain.failure == "");
        BOOST_TEST(divided.failure == "");
        BOOST_TEST(divided.samples == plain.samples);
        BOOST_TEST(divided.applied == plain.applied);
        BOOST_TEST(divided.weights_sha256 == plain.weights_sha256);
      }
}

// The running statistics of a layer follow their own update rule, so the optimizer does not change
// them.
BOOST_AUTO_TEST_CASE(batch_normalization) {
  const std::vector<std::string> how{
    "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { units: 10 } } "
    "loss: SOFTMAX_CROSS_ENTROPY }"};
  const auto plain = simulate(simulated(forty_steps(false, 2, how), 2, 0)).summary;
  const auto divided = simulate(simulated(forty_steps(true, 2, how), 2, 0)).summary;
  BOOST_TEST(divided.failure == "");
  BOOST_TEST(divided.weights_sha256 == plain.weights_sha256);
}

BOOST_AUTO_TEST_CASE(all_ways_give_the_same_bits) {
  const auto job = forty_steps(true, 4, {"optimizer={kind: ADAM}", "epochs=1"});
  const auto expected = train(way::simulated, job, 4, 0);
  BOOST_TEST(expected.failure == "");
  for (const auto how : {way::here, way::processes})
    BOOST_TEST(train(how, job, 4, 0).weights_sha256 == expected.weights_sha256);
}

// Each rank sends its part of the optimizer's state. The checkpoint contains the whole state, as if
// the ring did not divide it.
BOOST_AUTO_TEST_CASE(a_checkpoint_holds_the_whole_state) {
  const std::vector<std::string> kept{
    "optimizer={kind: ADAM}", "checkpoint={every_steps: 1 keep: 40}", "evaluate={every_steps: 7}"};
  for (const std::size_t workers : {2, 3}) {
    const auto job = [&](bool divided) { return forty_steps(divided, workers, kept); };
    auto options = simulated(job(true), workers, 0);
    options.files = std::make_shared<memory_storage>();
    auto plain = simulated(job(false), workers, 0);
    plain.files = std::make_shared<memory_storage>();
    const auto whole = simulate(options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    BOOST_TEST(simulate(plain).summary.weights_sha256 == whole.weights_sha256);
    const auto folder = checkpoint_folder("out");
    for (const std::uint64_t step : {1, 2, 10, 19, 33, 39})
      BOOST_TEST_CONTEXT(workers << " workers, step " << step) {
        const auto at = folder / checkpoint_name(step);
        BOOST_TEST((options.files->contents(at / "optimizer.safetensors")
                    == plain.files->contents(at / "optimizer.safetensors")));
        const auto resumed = [&](const proto::Job& next, std::size_t crew) {
          auto how = simulated(next, crew, 0);
          const auto context = make_job_context(next, shape_of(*how.data.train));
          how.resume = std::make_shared<checkpoint>(
            fit_checkpoint(read_checkpoint(*options.files, at), *context));
          return simulate(how).summary;
        };
        // The run continues from the checkpoint with a divided state, with an undivided state, and
        // with another number of workers.
        for (const bool divided : {true, false})
          BOOST_TEST(resumed(job(divided), workers).weights_sha256 == whole.weights_sha256);
        for (const std::size_t crew : {1, 4}) {
          const auto with = resumed(forty_steps(true, crew, kept), crew);
          BOOST_TEST(with.failure == "");
          BOOST_TEST(with.weights_sha256
                     == resumed(forty_steps(false, crew, kept), crew).weights_sha256);
        }
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()
