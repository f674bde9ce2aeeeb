// Causes many kinds of stalls in simulated runs. The operator must learn the cause within two
// seconds. A healthy run must cause no notice.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(stalls)

namespace {

constexpr auto notice_begin = "nothing has moved for ";

simulation_options training(proto::Protocol protocol, std::uint64_t seed,
                            std::chrono::nanoseconds latency = 5ms,
                            const std::string& change = "name=healthy") {
  const auto job = example_job("digits_mlp",
                               {"data.digits={train: 480 test: 20}", "data.batch=16",
                                "epochs=100000", "model.layer[0].dense.units=8",
                                "protocol=" + proto::Protocol_Name(protocol), change});
  auto result = simulated(job, 3, 2, seed);
  result.links.latency = latency;
  result.limit = 6s;
  return result;
}

std::vector<simulated_notice> stall_notices(const simulation& run) {
  std::vector<simulated_notice> result;
  for (auto& x : run.seen().notices)
    if (x.text.starts_with(notice_begin))
      result.push_back(x);
  return result;
}

/// How to cause a stall: the protocol, the cause that the notice must name, and the fault.
struct stall {
  proto::Protocol protocol;
  std::string root;
  std::function<void(simulation&)> inject;
  /// True if the stall begins only at the end of an epoch, later than the fault.
  bool later = false;
  /// A change of the job, like on the command line.
  std::string change = "name=stalled";
};

auto frozen_worker(std::size_t i) {
  return [i](simulation& x) { x.freeze(x.worker_node(i)); };
}

auto frozen_shard(std::size_t i) {
  return [i](simulation& x) { x.freeze(x.ps_node(i)); };
}

auto stuck(const std::string& actor, std::size_t i) {
  return [actor, i](simulation& x) { x.freeze(x.worker_node(i), "troupe." + actor); };
}

auto stuck_at_shard(const std::string& actor, std::size_t i) {
  return [actor, i](simulation& x) { x.freeze(x.ps_node(i), "troupe." + actor); };
}

auto dead_link(std::size_t a, std::size_t b) {
  return [a, b](simulation& x) { x.network().partition(x.worker_node(a), x.worker_node(b)); };
}

auto dead_link_to_shard(std::size_t worker, std::size_t shard) {
  return [worker, shard](simulation& x) {
    x.network().partition(x.worker_node(worker), x.ps_node(shard));
  };
}

auto dead_link_of_shards(std::size_t a, std::size_t b) {
  return [a, b](simulation& x) { x.network().partition(x.ps_node(a), x.ps_node(b)); };
}

/// Drops the weights that a shard sends to the coordinator. The shard's reports still arrive.
auto lost_snapshot(std::size_t i) {
  return [i](simulation& x) {
    x.network().judge_with([&x, i](sim_node from, sim_node to, const caf::message& content) {
      const bool answer = content.match_elements<proto::Frame, caf::message>()
        && content.get_as<proto::Frame>(0).kind() == proto::Frame::RESPONSE;
      return answer && from == x.ps_node(i) && to == x.coordinator_node() ? verdict::drop
                                                                          : verdict::deliver;
    });
  };
}

std::vector<stall> all_stalls() {
  const auto paused = [](const std::string& x) { return x + " is paused"; };
  const auto link = [](const std::string& a, const std::string& b) {
    return "the connection between " + a + " and " + b + " is dead";
  };
  const auto computes = " has been computing one gradient";
  const auto reads = " has been waiting for its own input";
  const auto silent = " is alive, but does not answer";
  const std::string clips = "optimizer.clip_norm=1";
  return {
    {proto::SYNC_PS, paused("worker/0"), frozen_worker(0)},
    {proto::SYNC_PS, paused("worker/2"), frozen_worker(2)},
    {proto::RING, paused("worker/0"), frozen_worker(0)},
    {proto::RING, paused("worker/1"), frozen_worker(1)},
    {proto::RING, paused("worker/2"), frozen_worker(2)},
    {proto::ASYNC_PS, paused("ps/0"), frozen_shard(0)},
    {proto::ASYNC_PS, paused("ps/1"), frozen_shard(1)},
    {proto::SYNC_PS, paused("ps/0"), frozen_shard(0)},
    {proto::SYNC_PS, paused("ps/1"), frozen_shard(1)},
    {proto::SYNC_PS, link("worker/0", "ps/0"), dead_link_to_shard(0, 0)},
    {proto::SYNC_PS, link("worker/2", "ps/1"), dead_link_to_shard(2, 1)},
    {proto::ASYNC_PS, link("worker/1", "ps/0"), dead_link_to_shard(1, 0), true},
    {proto::SYNC_PS, link("ps/0", "ps/1"), dead_link_of_shards(0, 1), false, clips},
    {proto::SYNC_PS, paused("ps/1"), frozen_shard(1), false, clips},
    {proto::SYNC_PS, paused("worker/2"), frozen_worker(2), false, clips},
    {proto::RING, link("worker/0", "worker/1"), dead_link(0, 1)},
    {proto::RING, link("worker/1", "worker/2"), dead_link(1, 2)},
    {proto::RING, link("worker/2", "worker/0"), dead_link(2, 0)},
    {proto::SYNC_PS, "worker/1" + std::string{reads}, stuck("input", 1)},
    {proto::RING, "worker/2" + std::string{reads}, stuck("input", 2)},
    {proto::ASYNC_PS, "worker/0" + std::string{reads}, stuck("input", 0), true},
    {proto::SYNC_PS, "worker/0" + std::string{computes}, stuck("trainer", 0)},
    {proto::RING, "worker/1" + std::string{computes}, stuck("trainer", 1)},
    {proto::RING, "worker/0 ", stuck("ring_synchronizer", 0)},
    {proto::RING, "worker/2 ", stuck("ring_synchronizer", 2)},
    {proto::ASYNC_PS, "worker/2" + std::string{computes}, stuck("trainer", 2), true},
    {proto::ASYNC_PS, "ps/1" + std::string{silent}, stuck_at_shard("shard", 1)},
    {proto::SYNC_PS, "ps/0" + std::string{silent}, stuck_at_shard("reader", 0)},
    {proto::ASYNC_PS, "ps/1" + std::string{silent}, lost_snapshot(1), true},
    {proto::SSP, paused("worker/2"), frozen_worker(2)},
    {proto::SSP, "worker/1" + std::string{computes}, stuck("trainer", 1)},
    {proto::SSP, "worker/0" + std::string{reads}, stuck("input", 0)},
    {proto::SSP, paused("ps/1"), frozen_shard(1)},
    {proto::SSP, link("worker/1", "ps/0"), dead_link_to_shard(1, 0)},
    {proto::SYNC_PS, "the coordinator's evaluation",
     [](simulation& x) { x.freeze(x.coordinator_node(), "troupe.evaluator"); }, true},
  };
}

/// The time in a notice. For example, "nothing has moved for 1.2 s ..." gives 1.2 s.
std::chrono::duration<double> told_quiet(const std::string& text) {
  return std::chrono::duration<double>{std::stod(text.substr(std::string{notice_begin}.size()))};
}

} // namespace

BOOST_AUTO_TEST_CASE(each_is_explained_within_two_seconds) {
  std::uint64_t seed = 0;
  some_cases chosen{3};
  for (auto& x : all_stalls()) {
    ++seed;
    if (!chosen())
      continue;
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol) << ", " << x.root << ", seed " << seed) {
      simulation run{training(x.protocol, seed, 5ms, x.change)};
      const auto begin = 1500ms + seed * 41ms;
      run.at(begin, [&] { x.inject(run); });
      run.run();
      const auto told = stall_notices(run);
      BOOST_TEST_REQUIRE(!told.empty());
      const auto& first = told.front();
      BOOST_TEST_MESSAGE(first.text);
      BOOST_TEST(first.text.find("Root: " + x.root) != std::string::npos, first.text);
      BOOST_TEST((first.when > begin));
      BOOST_TEST((told_quiet(first.text) < 2s), first.text);
      if (!x.later)
        BOOST_TEST((first.when - begin < 2s), first.text);
      // While a stall lasts, its notice is rarely repeated.
      BOOST_TEST(told.size() == 1U);
    }
  }
}

BOOST_AUTO_TEST_CASE(their_end_is_told) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      simulation run{training(protocol, 1)};
      const auto victim = traits_of(protocol).in_step ? run.worker_node(1) : run.ps_node(0);
      run.at(1500ms, [&] { run.freeze(victim); });
      run.at(4s, [&] { run.thaw(victim); });
      run.run();
      BOOST_TEST(stall_notices(run).size() == 1U);
      BOOST_TEST_REQUIRE(!run.seen().notices.empty());
      const auto& last = run.seen().notices.back();
      BOOST_TEST(last.text.find("training continues; nothing had moved for 2.") == 0U, last.text);
      BOOST_TEST((last.when > 4s && last.when < 5s));
      BOOST_TEST(run.seen().progress.back().updates > 60U);
    }
}

// No notice in healthy runs, whose steps take between half a millisecond and four seconds. Each run
// includes the first step, which is slow, and evaluations.
BOOST_AUTO_TEST_CASE(nothing_is_told_of_healthy_runs) {
  some_cases chosen;
  for (const auto protocol : all_protocols)
    for (const auto latency : {100us, 30'000us, 300'000us, 1'000'000us})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)
                           << ", latency " << latency.count() << " us, seed " << seed) {
          auto options = training(protocol, seed, latency);
          options.links.jitter = latency / 2;
          options.job.set_epochs(latency < 1ms ? 10 : 2);
          options.limit = 600s;
          simulation run{options};
          BOOST_TEST(run.run().summary.failure == "");
          for (auto& x : stall_notices(run))
            BOOST_TEST(x.text == "");
        }
      }
}

// A worker that is slower than the others is not a stall.
BOOST_AUTO_TEST_CASE(nothing_is_told_of_a_straggler) {
  simulation run{training(proto::ASYNC_PS, 1)};
  for (auto when = 0ms; when < 6s; when += 200ms) {
    run.at(when, [&] { run.freeze(run.worker_node(1), "troupe.trainer"); });
    run.at(when + 150ms, [&] { run.thaw(run.worker_node(1), "troupe.trainer"); });
  }
  run.run();
  BOOST_TEST(run.seen().notices.empty());
  BOOST_TEST(run.seen().progress.back().updates > 60U);
}

BOOST_AUTO_TEST_SUITE_END()
