// Runs over links on which a payload takes much longer than the timeout of a request. A transfer
// that makes progress must not fail, and must not be started again. A task that hangs must still
// end the run in time.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(slow_links)

namespace {

/// The limit for a request without an answer is three times this time.
constexpr auto request_timeout = 2s;

/// The weights take about 20 seconds over a link of 50 KB/s.
constexpr double slow = 50e3;

simulation_options over_slow_links(const std::string& protocol,
                                   std::vector<std::string> changes = {}) {
  changes.insert(changes.begin(),
                 {"data.digits={train: 48 test: 2}", "data.batch=24", "epochs=1",
                  "model.layer[0].dense.units=340", "protocol=" + protocol,
                  "runtime.request_timeout_ms=" + std::to_string(request_timeout / 1ms)});
  auto result = simulated(example_job("digits_mlp", changes), 2, 1);
  result.channels = true;
  result.links.bytes_per_second = slow;
  result.links.in_transit = std::size_t{32} << 10;
  result.limit = 3000s;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_transfer_that_makes_progress_does_not_fail) {
  for (const auto* protocol : {"SYNC_PS", "ASYNC_PS", "SSP", "RING", "LOCAL_SGD"})
    BOOST_TEST_CONTEXT(protocol) {
      auto options = over_slow_links(protocol);
      simulation run{options};
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == 48U);
      BOOST_TEST((result.virtual_time > 10 * request_timeout));
      // Nothing was sent twice.
      options.links.bytes_per_second = 1e9;
      const auto fast = simulate(options);
      BOOST_TEST(static_cast<double>(result.bytes) < 1.1 * static_cast<double>(fast.bytes));
      for (const auto& x : run.seen().notices) {
        BOOST_TEST(!contains(x.text, "debugger"), x.text);
        BOOST_TEST(!contains(x.text, "is paused"), x.text);
        BOOST_TEST(!contains(x.text, "is dead"), x.text);
      }
    }
}

// Parts of checkpoints and of evaluated versions take long, too.
BOOST_AUTO_TEST_CASE(captures_arrive) {
  for (const auto* protocol : {"SYNC_PS", "RING"})
    BOOST_TEST_CONTEXT(protocol) {
      auto options = over_slow_links(
        protocol, {"output=out", "checkpoint.every_steps=1", "evaluate.every_steps=1"});
      const auto result = simulate(options);
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.checkpoint != "");
    }
}

// The link works, but the actor that sends the weights hangs. The run ends after the usual time.
BOOST_AUTO_TEST_CASE(a_shard_that_hangs_is_reported) {
  for (const auto* actor : {"troupe.reader", "troupe.shard"})
    BOOST_TEST_CONTEXT(actor) {
      simulation run{over_slow_links("SYNC_PS")};
      // The actor hangs while a payload moves.
      run.at(30s, [&] { run.freeze(run.ps_node(0), actor); });
      const auto result = run.run();
      BOOST_TEST_MESSAGE(result.summary.failure);
      BOOST_TEST(contains(result.summary.failure, " ps/0"), result.summary.failure);
      BOOST_TEST(contains(result.summary.failure, ": timed out: no answer and no data for 6 s"),
                 result.summary.failure);
      BOOST_TEST(contains(result.summary.failure, "raise runtime.request_timeout_ms"),
                 result.summary.failure);
      const auto& told = run.seen().notices;
      BOOST_TEST_REQUIRE(!told.empty());
      BOOST_TEST((result.virtual_time < 120s));
    }
}

BOOST_AUTO_TEST_SUITE_END()
