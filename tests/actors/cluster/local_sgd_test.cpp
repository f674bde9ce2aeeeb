// Replicas that are averaged from time to time.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t workers = 4;

/// 5 steps in each of 4 epochs, all of them of 4 x 16 samples.
proto::Job twenty_steps(proto::Protocol protocol, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 320 test: 20}",
                                   "data.batch=16",
                                   "epochs=4",
                                   "output=out",
                                   "model.layer[0].dense.units=12",
                                   "optimizer={kind: SGD}",
                                   "learning_rate={base: 0.1}",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

proto::Job local(std::uint32_t every, const std::vector<std::string>& more = {}) {
  auto changes = more;
  changes.push_back("local_sgd.every=" + std::to_string(every));
  return twenty_steps(proto::LOCAL_SGD, changes);
}

std::vector<float> weights_of(const proto::Job& job) {
  simulation run{simulated(job, workers, 0)};
  BOOST_TEST(run.run().summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto file = run.files().contents("out/weights.safetensors");
  return read_model(as_byte_span(file), context->parameters(), "weights").weights;
}

void check_near(const std::vector<float>& found, const std::vector<float>& expected) {
  const std::vector<double> reference(expected.begin(), expected.end());
  check_close(std::span<const float>{found}, reference, 0, 1e-6, "weights");
}

/// Counts pieces of averages, and may lose the first requests for weights.
struct watcher {
  std::uint64_t pieces = 0;
  std::uint64_t pulls = 0;
  std::uint64_t lose_pulls = 0;

  verdict operator()(const caf::message& content) {
    if (content.empty() || !content.match_element<proto::Frame>(0))
      return verdict::deliver;
    const auto service = content.get_as<proto::Frame>(0).to().service();
    pieces += service == proto::RING_NODE ? 1 : 0;
    if (service != proto::READER)
      return verdict::deliver;
    return ++pulls <= lose_pulls ? verdict::drop : verdict::deliver;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(local_sgd)

// The mean of w - rate * g over the workers is w - rate * (mean of g).
BOOST_AUTO_TEST_CASE(after_each_step_it_is_a_ring) {
  check_near(weights_of(local(1)), weights_of(twenty_steps(proto::RING)));
}

// One step in each epoch: the replicas are averaged when the weights are read, and only then.
BOOST_AUTO_TEST_CASE(replicas_are_averaged_before_they_are_read) {
  const std::vector<std::string> one_step{"data.batch=80"};
  check_near(weights_of(local(1000, one_step)), weights_of(twenty_steps(proto::RING, one_step)));
}

BOOST_AUTO_TEST_CASE(statistics_are_averaged_too) {
  const std::vector<std::string> changes{
    "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { units: 10 } } "
    "loss: SOFTMAX_CROSS_ENTROPY }"};
  check_near(weights_of(local(1, changes)), weights_of(twenty_steps(proto::RING, changes)));
}

BOOST_AUTO_TEST_CASE(all_ways_give_the_same_bits) {
  for (const auto* const rule : {"{kind: SGD}", "{kind: ADAM}"}) {
    const auto job = local(3, {std::string{"optimizer="} + rule, "learning_rate.base=0.02"});
    const auto expected = train(way::simulated, job, workers, 0);
    BOOST_TEST(expected.failure == "");
    // Each gradient counts once per replica.
    BOOST_TEST(expected.applied == 20 * workers * workers);
    BOOST_TEST(expected.split == 0U);
    BOOST_TEST(expected.test_loss < 2.3);
    for (const auto how : {way::here, way::processes})
      BOOST_TEST(train(how, job, workers, 0).weights_sha256 == expected.weights_sha256);
  }
}

BOOST_AUTO_TEST_CASE(fewer_averages_send_fewer_pieces) {
  const auto pieces = [](std::uint32_t every) {
    simulation run{simulated(local(every), workers, 0)};
    watcher seen;
    run.network().judge_with(
      [&](sim_node, sim_node, const caf::message& content) { return seen(content); });
    BOOST_TEST(run.run().summary.failure == "");
    return seen.pieces;
  };
  const auto each = pieces(1);
  BOOST_TEST(each > 0U);
  // An epoch ends with an average: after 5, 10, 15 and 20 steps.
  BOOST_TEST(pieces(5) * 5 == each);
  BOOST_TEST(pieces(100) == pieces(5));
}

// The coordinator asks again, and gets the same weights.
BOOST_AUTO_TEST_CASE(lost_requests_for_weights) {
  const auto job = local(3, {"runtime.request_timeout_ms=20"});
  const auto expected = simulate(simulated(job, workers, 0)).summary.weights_sha256;
  simulation run{simulated(job, workers, 0)};
  watcher seen;
  seen.lose_pulls = 2;
  run.network().judge_with(
    [&](sim_node, sim_node, const caf::message& content) { return seen(content); });
  const auto result = run.run().summary;
  BOOST_TEST(seen.pulls > seen.lose_pulls);
  BOOST_TEST(result.failure == "");
  BOOST_TEST(result.weights_sha256 == expected);
}

// Without state of the optimizer: each worker would go on with its own.
BOOST_AUTO_TEST_CASE(a_run_goes_on_from_an_average) {
  for (const std::uint32_t every : {1, 4}) {
    const auto job = local(every,
                           {"checkpoint={every_steps: " + std::to_string(every) + " keep: 40}",
                            "learning_rate={base: 0.1 cosine {}}"});
    auto options = simulated(job, workers, 0);
    options.files = std::make_shared<memory_storage>();
    const auto whole = simulate(options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    const auto context = make_job_context(job, shape_of(*options.data.train));
    const auto files = options.files;
    options.files = nullptr;
    for (std::uint64_t step = every; step <= 20; step += every)
      BOOST_TEST_CONTEXT("every " << every << ", step " << step) {
        options.resume = std::make_shared<checkpoint>(fit_checkpoint(
          read_checkpoint(*files, checkpoint_folder("out") / checkpoint_name(step)), *context));
        const auto resumed = simulate(options).summary;
        BOOST_TEST(resumed.failure == "");
        BOOST_TEST(resumed.weights_sha256 == whole.weights_sha256);
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()
