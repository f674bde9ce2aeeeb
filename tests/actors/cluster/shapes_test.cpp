// Clusters in which a node has several tasks, and clusters with an evaluator.

#include "kernels/error.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(shapes)

namespace {

constexpr std::uint64_t train_samples = 320;
constexpr std::uint32_t epochs = 3;

simulation_options options_for(proto::Protocol protocol, std::size_t workers, std::size_t ps,
                               std::uint64_t seed = 1) {
  return simulated(
    example_job("digits_mlp",
                {"data.digits={train: 320 test: 20}", "data.batch=16",
                 "epochs=" + std::to_string(epochs), "protocol=" + proto::Protocol_Name(protocol),
                 "runtime.request_timeout_ms=20", "model.layer[0].dense.units=16"}),
    workers, ps, seed);
}

void check_complete(const simulation_result& x) {
  BOOST_TEST(x.summary.failure == "");
  BOOST_TEST(x.summary.samples == epochs * train_samples);
  BOOST_TEST(x.summary.rejected_stale + x.summary.lost + x.summary.split == 0U);
  for (auto& node : x.nodes) {
    BOOST_TEST_REQUIRE(node.has_value());
    BOOST_TEST(node->failure == "");
  }
}

/// The model has 7 classes, and the data has 10.
void check_refused(simulation_options options) {
  options.job.mutable_model()->mutable_layer(1)->mutable_dense()->set_units(7);
  BOOST_CHECK_THROW(simulation{options}, input_error);
}

/// Counts the requests to a service.
class request_count {
public:
  explicit request_count(proto::Service service) : service_(service) {}

  verdict operator()(sim_node, sim_node, const caf::message& content) {
    if (content.match_elements<proto::Frame, caf::message>()
        || (!content.empty() && content.match_element<proto::Frame>(0)))
      *count_ += content.get_as<proto::Frame>(0).to().service() == service_ ? 1 : 0;
    return verdict::deliver;
  }

  std::uint64_t operator*() const { return *count_; }

private:
  proto::Service service_;
  std::shared_ptr<std::uint64_t> count_ = std::make_shared<std::uint64_t>(0);
};

} // namespace

// The constructor must also end the actors that it has started.
BOOST_AUTO_TEST_CASE(a_job_that_does_not_fit_its_data) {
  auto options = options_for(proto::RING, 2, 0);
  check_refused(options);
  options.one_node = true;
  check_refused(options);
  options.one_node = false;
  options.channels = true;
  check_refused(options);
}

// Worker 0 runs on the coordinator's node. Other nodes reach it through their link to the
// coordinator.
BOOST_AUTO_TEST_CASE(a_coordinator_that_trains) {
  for (const auto protocol : all_protocols)
    for (const std::size_t workers : {1, 2, 3, 4})
      for (std::uint64_t seed = 1; seed <= tries(2); ++seed)
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)
                           << ", " << workers << " workers, seed " << seed) {
          auto options =
            options_for(protocol, workers, traits_of(protocol).uses_shards() ? 2 : 0, seed);
          const auto apart = simulate(options);
          options.coordinator_trains = true;
          const auto together = simulate(options);
          check_complete(together);
          BOOST_TEST(together.nodes.size() + 1 == apart.nodes.size());
          BOOST_TEST(together.summary.applied == apart.summary.applied);
          if (traits_of(protocol).in_step || workers == 1)
            BOOST_TEST(together.summary.weights_sha256 == apart.summary.weights_sha256);
        }
}

BOOST_AUTO_TEST_CASE(others_go_on_beside_a_coordinator_that_trains) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      auto options = options_for(proto::ASYNC_PS, 3, 2, seed);
      options.coordinator_trains = true;
      simulation run{std::move(options)};
      run.at(5ms + seed * 137us, [&] { run.crash(run.worker_node(2)); });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == epochs * train_samples);
      BOOST_TEST(result.summary.split == 0U);
    }
}

BOOST_AUTO_TEST_CASE(an_evaluator_computes_what_the_coordinator_would) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      auto options = options_for(protocol, 1, traits_of(protocol).uses_shards() ? 2 : 0);
      const auto without = simulate(options);
      options.evaluator = true;
      simulation run{std::move(options)};
      const request_count asked{proto::EVALUATOR};
      run.network().judge_with(asked);
      const auto result = run.run();
      check_complete(result);
      BOOST_TEST(*asked > 0U);
      BOOST_TEST(result.summary.test_loss == without.summary.test_loss);
      BOOST_TEST(*result.summary.test_accuracy == *without.summary.test_accuracy);
      BOOST_TEST(result.summary.weights_sha256 == without.summary.weights_sha256);
    }
}

BOOST_AUTO_TEST_CASE(an_evaluator_may_be_lost) {
  std::uint64_t asked_before = 0;
  for (std::uint64_t seed = 1; seed <= 15; seed += under_sanitizer ? 3 : 1)
    for (const bool stopped : {false, true})
      BOOST_TEST_CONTEXT("seed " << seed << (stopped ? ", stopped" : ", crashed")) {
        auto options = options_for(proto::ASYNC_PS, 2, 1, seed);
        options.evaluator = true;
        simulation run{std::move(options)};
        const request_count asked{proto::EVALUATOR};
        run.network().judge_with(asked);
        run.at(1200us + seed * 1900us, [&] {
          asked_before += *asked;
          if (stopped)
            run.stop(run.evaluator_node(), "SIGTERM");
          else
            run.crash(run.evaluator_node());
        });
        const auto result = run.run();
        BOOST_TEST(result.summary.failure == "");
        BOOST_TEST(result.summary.samples == epochs * train_samples);
        BOOST_TEST(result.summary.test_accuracy.has_value());
        BOOST_TEST(result.summary.weights_sha256.size() == 64U);
        if (stopped)
          BOOST_TEST(result.nodes.back()->failure == "");
      }
  BOOST_TEST(asked_before > 0U);
}

// The evaluator leaves just after it has received a snapshot of the weights. The run must not end
// before all snapshots are evaluated. So the coordinator evaluates this snapshot itself.
BOOST_AUTO_TEST_CASE(an_evaluator_is_lost_with_what_it_owes) {
  for (const auto protocol : all_protocols)
    for (const std::uint64_t snapshot : {1, 2})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", snapshot " << snapshot) {
        auto options = options_for(protocol, 1, traits_of(protocol).default_shards());
        const auto without = simulate(options);
        options.evaluator = true;
        simulation run{std::move(options)};
        std::uint64_t seen = 0;
        run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
          if (!content.empty() && content.match_element<proto::Frame>(0)
              && content.get_as<proto::Frame>(0).to().service() == proto::EVALUATOR
              && ++seen == snapshot)
            run.at(run.elapsed(), [&] { run.crash(run.evaluator_node()); });
          return verdict::deliver;
        });
        const auto result = run.run();
        BOOST_TEST(seen == snapshot);
        BOOST_TEST(result.summary.failure == "");
        BOOST_TEST(result.summary.samples == epochs * train_samples);
        BOOST_TEST(result.summary.test_loss == without.summary.test_loss);
        BOOST_TEST(result.summary.weights_sha256 == without.summary.weights_sha256);
      }
}

// Requests to the evaluator or its answers get lost. The coordinator asks again, or continues
// without the evaluator.
BOOST_AUTO_TEST_CASE(lost_messages_of_an_evaluator) {
  for (const std::uint64_t every : {1, 2, 3})
    BOOST_TEST_CONTEXT("every " << every) {
      auto options = options_for(proto::ASYNC_PS, 2, 1);
      options.evaluator = true;
      simulation run{std::move(options)};
      std::uint64_t seen = 0;
      std::uint64_t dropped = 0;
      run.network().judge_with([&](sim_node from, sim_node to, const caf::message& content) {
        const bool frame = !content.empty() && content.match_element<proto::Frame>(0);
        const bool between =
          (from == run.evaluator_node() && to == 0) || (from == 0 && to == run.evaluator_node());
        // Drops messages only after the evaluator has joined and opened its view (the set of tasks
        // that train together).
        if (!frame || !between || run.elapsed() < 3ms || ++seen % every != 0)
          return verdict::deliver;
        ++dropped;
        return verdict::drop;
      });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == epochs * train_samples);
      BOOST_TEST(dropped > 0U);
    }
}

BOOST_AUTO_TEST_SUITE_END()
