// In simulated runs, TCP connections break and are restored: at every record (message on a
// connection), and at random.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdlib>
#include <memory>
#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(broken_connections)

namespace {

constexpr std::uint64_t samples = 24;
constexpr auto suspect_after = 200ms;
constexpr std::array all_breakages{breakage::cut, breakage::reset, breakage::half_open,
                                   breakage::stall};

const char* name_of(breakage x) {
  constexpr std::array names{"cut", "reset", "half open", "stall"};
  return names.at(static_cast<std::size_t>(x));
}

/// Options of a small job. Its gradients are so large that a channel does not copy them into a
/// record (see stream_channel::large), even after a ring divides them into segments.
simulation_options options_with(std::vector<std::string> changes, std::uint64_t seed = 1) {
  changes.insert(changes.begin(),
                 {"data.digits={train: 24 test: 2}", "data.batch=4", "epochs=1",
                  "model.layer[0].dense.units=16"});
  auto result = simulated(example_job("digits_mlp", changes), 2, 1, seed);
  result.channels = true;
  return result;
}

/// A silent peer is suspected after this time. That is long before a request is repeated.
const std::string suspicious = "runtime.suspect_after_ms=" + std::to_string(suspect_after.count());

/// Protocols with synchronous steps. If connections break, their weights must still be the same,
/// bit for bit.
const std::vector<std::vector<std::string>> in_step{
  {suspicious, "protocol=SYNC_PS"},
  {suspicious, "protocol=RING"},
  {suspicious, "protocol=RING", "ring.shard_optimizer=true"}};

const std::vector<std::string> not_in_step{suspicious, "protocol=ASYNC_PS"};

/// Breaks the connection that carries record number `record`, counted over all connections.
record_judge at_record(std::uint64_t record, breakage how, std::uint64_t bytes) {
  return [=, seen = std::uint64_t{0}](auto...) mutable -> std::optional<record_fate> {
    if (seen++ != record)
      return std::nullopt;
    return record_fate{how, bytes};
  };
}

/// Breaks the connection at random: at about one record in `every`. If the record is a greeting,
/// both ends see the break. If only one end saw it, the other would wait longer than a connection
/// may stay broken.
record_judge at_random(std::uint64_t every, std::uint64_t seed) {
  return [every, random = std::mt19937_64{seed}](
           sim_node, sim_node, proto::RecordKind kind) mutable -> std::optional<record_fate> {
    if (random() % every != 0)
      return std::nullopt;
    const auto kinds = kind == proto::GREETING ? 2 : all_breakages.size();
    const auto how = all_breakages.at(random() % kinds);
    return record_fate{how, random() % 2 == 0 ? random() % 30'000 : record_fate{}.bytes};
  };
}

/// Every gradient was applied, once.
void check_ledger(const simulation_result& x, const simulation_result& undisturbed) {
  BOOST_TEST_INFO_SCOPE("after " << x.virtual_time / 1ms << " ms");
  BOOST_TEST(x.summary.failure == "");
  BOOST_TEST(x.summary.samples == samples);
  BOOST_TEST(x.summary.applied == undisturbed.summary.applied);
  BOOST_TEST(x.summary.rejected_stale + x.summary.requeued + x.summary.lost + x.summary.split
             == 0U);
  for (const auto& node : x.nodes)
    BOOST_TEST((node && node->failure.empty()));
}

/// Breaks a connection at record 0, 1, 2, ... until a run has no record with this number.
void break_at_every_record(const simulation_options& options, bool same_weights) {
  const auto undisturbed = simulate(options);
  check_ledger(undisturbed, undisturbed);
  for (const auto how : all_breakages) {
    some_cases chosen;
    std::uint64_t record = 0;
    for (bool broken = true; broken; ++record) {
      if (!chosen())
        continue;
      BOOST_TEST_INFO_SCOPE(name_of(how) << " at record " << record);
      // The connection breaks after this number of bytes of the record: within its header, within
      // its head (the message without the payload), within its payload, or after the record.
      constexpr std::array<std::uint64_t, 4> bytes{9, 20, 20'000, record_fate{}.bytes};
      simulation run{options};
      run.channels().judge_with(at_record(record, how, bytes.at(record % bytes.size())));
      const auto result = run.run();
      check_ledger(result, undisturbed);
      if (same_weights) {
        BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
        BOOST_TEST(result.summary.duplicates == 0U);
      }
      broken = run.channels().broken() > 0;
    }
    BOOST_TEST(record > 100U);
    BOOST_TEST_MESSAGE(proto::Protocol_Name(options.job.protocol())
                       << ": " << name_of(how) << " at each of " << record - 1 << " records");
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(the_way_of_messages_changes_no_bit) {
  for (const auto& changes : in_step)
    BOOST_TEST_CONTEXT(changes.back()) {
      auto options = options_with(changes);
      simulation run{options};
      const auto by_channels = run.run();
      BOOST_TEST(by_channels.summary.failure == "");
      BOOST_TEST(run.channels().records() > 100U);
      options.channels = false;
      const auto without = simulate(options);
      BOOST_TEST(by_channels.summary.weights_sha256 == without.summary.weights_sha256);
      BOOST_TEST(by_channels.messages < without.messages);
    }
}

BOOST_AUTO_TEST_CASE(at_every_record_in_step) {
  for (const auto& changes : in_step)
    BOOST_TEST_CONTEXT(changes.back())
  break_at_every_record(options_with(changes), true);
}

// Here, a silent peer is suspected only after the default time, which is long. So one end of a
// broken connection notices the silence much later than the other end. In the meantime, requests
// are repeated.
BOOST_AUTO_TEST_CASE(at_every_record_not_in_step) {
  break_at_every_record(options_with({not_in_step.back()}), false);
}

// Breaks connections at random until TROUPE_CUTS connections have broken.
BOOST_AUTO_TEST_CASE(soak) {
  const auto* text = std::getenv("TROUPE_CUTS");
  const auto wanted = text != nullptr ? std::stoull(text) : tries(10'000);
  std::uint64_t broken = 0;
  std::uint64_t seed = 0;
  std::vector<simulation_result> undisturbed;
  auto all = in_step;
  all.push_back(not_in_step);
  for (const auto& changes : all)
    undisturbed.push_back(simulate(options_with(changes)));
  while (broken < wanted) {
    const auto which = ++seed % all.size();
    BOOST_TEST_INFO_SCOPE(all[which].back() << ", seed " << seed);
    simulation run{options_with(all[which], seed)};
    run.channels().judge_with(at_random(12, seed));
    const auto result = run.run();
    check_ledger(result, undisturbed[which]);
    if (which < in_step.size())
      BOOST_TEST(result.summary.weights_sha256 == undisturbed[which].summary.weights_sha256);
    BOOST_TEST_REQUIRE(run.channels().broken() > 0U);
    broken += run.channels().broken();
  }
  BOOST_TEST_MESSAGE(broken << " broken connections in " << seed << " runs");
}

BOOST_AUTO_TEST_CASE(the_same_seed_breaks_the_same) {
  for (const auto& changes : {in_step.front(), not_in_step}) {
    std::vector<std::uint64_t> traces;
    for (int i = 0; i < 3; ++i) {
      simulation run{options_with(changes, 7)};
      run.channels().judge_with(at_random(20, 7));
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(run.channels().broken() > 0U);
      traces.push_back(result.trace_hash);
    }
    BOOST_TEST(traces[0] == traces[1]);
    BOOST_TEST(traces[0] == traces[2]);
  }
}

// A connection breaks, and only the receiver sees it. If the receiver opened the connection, it
// opens a new one at once, and so the sender notices the break. Otherwise, the sender notices it
// only when it suspects the silent receiver.
BOOST_AUTO_TEST_CASE(one_end_hears_nothing) {
  const auto options = options_with(in_step.front());
  const auto undisturbed = simulate(options);
  const auto time_with = [&](job_kind sender) {
    simulation run{options};
    const auto from = sender == job_kind::ps ? run.ps_node(0) : run.worker_node(0);
    const auto to = sender == job_kind::ps ? run.worker_node(0) : run.ps_node(0);
    run.channels().judge_with(
      [=, seen = 0](sim_node a, sim_node b, auto) mutable -> std::optional<record_fate> {
        if (a != from || b != to || ++seen != 5)
          return std::nullopt;
        return record_fate{breakage::half_open};
      });
    const auto result = run.run();
    BOOST_TEST(run.channels().broken() == 1U);
    check_ledger(result, undisturbed);
    BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
    return result.virtual_time - undisturbed.virtual_time;
  };
  // The worker opened this connection. So only the worker can open a new one: at once, if it is the
  // receiver.
  BOOST_TEST((time_with(job_kind::ps) < suspect_after));
  BOOST_TEST((time_with(job_kind::worker) >= suspect_after));
}

BOOST_AUTO_TEST_CASE(an_end_that_stays_away_is_given_up) {
  for (const auto& changes : in_step)
    BOOST_TEST_CONTEXT(changes.back()) {
      simulation run{options_with(changes)};
      run.at(3ms, [&] {
        for (sim_node other = 0; other < run.worker_node(1); ++other)
          run.network().partition(other, run.worker_node(1));
      });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure.find("worker/1") != std::string::npos,
                 result.summary.failure);
      BOOST_TEST((result.virtual_time < 30s));
      for (const auto& node : result.nodes)
        BOOST_TEST((node && !node->failure.empty()));
    }
}

// A worker is away for 8 s. The field `link_grace_ms` of the job decides whether the run survives.
BOOST_AUTO_TEST_CASE(an_end_that_comes_back_in_time) {
  constexpr auto away = 8s;
  for (const auto& changes : in_step)
    for (const auto grace : {2s, 20s})
      BOOST_TEST_CONTEXT(changes.back() << ", grace of " << grace.count() << " s") {
        auto all = changes;
        all.push_back("runtime.link_grace_ms=" + std::to_string(grace / 1ms));
        all.push_back("runtime.request_timeout_ms=60000");
        const auto undisturbed = simulate(options_with(all));
        simulation run{options_with(all)};
        const auto each_other = [&run](auto f) {
          for (sim_node other = 0; other < run.worker_node(1); ++other)
            f(other, run.worker_node(1));
        };
        run.at(3ms, [&] { each_other([&](auto a, auto b) { run.network().partition(a, b); }); });
        run.at(3ms + away, [&] { each_other([&](auto a, auto b) { run.network().heal(a, b); }); });
        const auto result = run.run();
        if (grace > away) {
          check_ledger(result, undisturbed);
          BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
          BOOST_TEST((result.virtual_time > away));
        } else {
          BOOST_TEST(result.summary.failure.find("worker/1") != std::string::npos,
                     result.summary.failure);
          BOOST_TEST((result.virtual_time < away));
        }
      }
}

BOOST_AUTO_TEST_CASE(a_worker_crashes) {
  for (std::uint64_t seed = 1; seed <= tries(40); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{options_with(not_in_step, seed)};
      run.at(2ms + seed * 77us, [&] { run.crash(run.worker_node(1)); });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == samples);
      BOOST_TEST(result.summary.split == 0U);
      BOOST_TEST((result.virtual_time < 1s));
    }
}

BOOST_AUTO_TEST_SUITE_END()
