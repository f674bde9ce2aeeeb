#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(determinism)

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_run) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      const auto options =
        simulated(example_job("digits_mlp",
                              {"data.digits={train: 300 test: 20}", "data.batch=16", "epochs=2",
                               "protocol=" + proto::Protocol_Name(protocol)}),
                  4, 2, 7);
      const auto first = simulate(options);
      BOOST_TEST(first.summary.failure == "");
      for (int i = 1; i < 20; ++i) {
        const auto again = simulate(options);
        BOOST_TEST(again.summary.weights_sha256 == first.summary.weights_sha256);
        BOOST_TEST(again.trace_hash == first.trace_hash);
        BOOST_TEST(again.messages == first.messages);
      }
    }
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit) {
  const auto weights_with = [](const std::string& threads) {
    const auto result =
      simulate(simulated(example_job("digits_mlp",
                                     {"data.digits={train: 300 test: 20}", "data.batch=64",
                                      "epochs=2", "protocol=RING", "runtime.threads=" + threads}),
                         2, 0));
    BOOST_TEST(result.summary.failure == "");
    return result.summary.weights_sha256;
  };
  BOOST_TEST(weights_with("3") == weights_with("1"));
}

BOOST_AUTO_TEST_CASE(other_seeds_give_other_runs) {
  auto options = simulated(example_job("digits_mlp",
                                       {"data.digits={train: 200 test: 20}", "data.batch=16",
                                        "epochs=1", "protocol=ASYNC_PS"}),
                           4, 2);
  std::set<std::uint64_t> traces;
  std::set<std::string> weights;
  for (options.seed = 1; options.seed <= 8; ++options.seed) {
    const auto result = simulate(options);
    BOOST_TEST(result.summary.failure == "");
    traces.insert(result.trace_hash);
    weights.insert(result.summary.weights_sha256);
  }
  BOOST_TEST(traces.size() == 8U);
  // Control experiment: in an asynchronous run, the weights depend on the order in which gradients
  // arrive.
  BOOST_TEST(weights.size() > 1U);
}

BOOST_AUTO_TEST_SUITE_END()
