// Simulated runs that must survive faults. The ledger (the account of all gradients) must always
// balance.

#include "actors/link/channel_host.hpp"
#include "messages/pieces.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(faults)

namespace {

constexpr std::uint64_t train_samples = 320;

proto::Job job_with(const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 320 test: 20}", "data.batch=16", "epochs=2",
                                   "protocol=ASYNC_PS", "runtime.request_timeout_ms=20"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

void check_complete(const simulation_result& x) {
  BOOST_TEST(x.summary.failure == "");
  BOOST_TEST(x.summary.samples == 2 * train_samples);
  BOOST_TEST(x.summary.split == 0U);
}

/// Counts the frames (messages between nodes) of one kind. Applies `what` to every `every`-th of
/// them, and delivers all other frames.
class nth_frame {
public:
  nth_frame(proto::Frame::Kind kind, std::uint64_t every, verdict what)
    : kind_(kind), every_(every), what_(what) {}

  verdict operator()(sim_node, sim_node, const caf::message& content) {
    if (!content.match_elements<proto::Frame, caf::message>()
        || content.get_as<proto::Frame>(0).kind() != kind_ || ++*seen_ % every_ != 0)
      return verdict::deliver;
    ++*hits_;
    return what_;
  }

  std::uint64_t hits() const { return *hits_; }

private:
  proto::Frame::Kind kind_;
  std::uint64_t every_;
  verdict what_;
  std::shared_ptr<std::uint64_t> seen_ = std::make_shared<std::uint64_t>(0);
  std::shared_ptr<std::uint64_t> hits_ = std::make_shared<std::uint64_t>(0);
};

/// True for a message with a gradient or with weights, and for the answer to it.
bool of_gradients(const caf::message& content) {
  if (!content.match_elements<proto::Frame, caf::message>())
    return false;
  const auto& inner = content.get_as<caf::message>(1);
  return !inner.empty()
    && (inner.match_element<proto::Push>(0) || inner.match_element<proto::PushPiece>(0)
        || inner.match_element<proto::NewWeights>(0) || inner.match_element<proto::Commit>(0)
        || inner.match_element<proto::Pull>(0) || inner.match_element<proto::Pushed>(0)
        || inner.match_element<proto::Weights>(0) || inner.match_element<proto::Advanced>(0));
}

} // namespace

BOOST_AUTO_TEST_CASE(repeated_messages_are_recognized) {
  for (const auto protocol : {"ASYNC_PS", "SYNC_PS", "SSP"})
    for (const std::uint64_t every : {1, 2, 7})
      BOOST_TEST_CONTEXT(protocol << ", every " << every) {
        simulation run{simulated(job_with({std::string{"protocol="} + protocol}), 3, 2)};
        nth_frame twice{proto::Frame::REQUEST, every, verdict::duplicate};
        run.network().judge_with(twice);
        const auto result = run.run();
        check_complete(result);
        BOOST_TEST(twice.hits() > 0U);
        BOOST_TEST(result.summary.duplicates > 0U);
        BOOST_TEST(result.summary.lost == 0U);
      }
}

BOOST_AUTO_TEST_CASE(lost_answers_and_requests_are_repeated) {
  std::uint64_t duplicates = 0;
  for (const auto kind : {proto::Frame::RESPONSE, proto::Frame::REQUEST})
    for (const auto protocol : {"ASYNC_PS", "SYNC_PS", "SSP"})
      BOOST_TEST_CONTEXT(protocol << ", " << proto::Frame::Kind_Name(kind)) {
        simulation run{simulated(job_with({std::string{"protocol="} + protocol}), 2, 2)};
        nth_frame gone{kind, 23, verdict::drop};
        run.network().judge_with(gone);
        const auto result = run.run();
        check_complete(result);
        BOOST_TEST(gone.hits() > 3U);
        if (kind == proto::Frame::RESPONSE)
          duplicates += result.summary.duplicates;
      }
  BOOST_TEST(duplicates > 0U);
}

// A worker that gets a signal gives back its leases (ranges of samples to train on). If it began a
// batch but did not send the gradient, another worker trains this batch.
BOOST_AUTO_TEST_CASE(a_worker_stops) {
  std::uint64_t requeued = 0;
  for (std::uint64_t seed = 1; seed <= tries(30); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{
        simulated(job_with({seed % 2 == 0 ? "protocol=SSP" : "protocol=ASYNC_PS"}), 3, 2, seed)};
      run.at(5ms + seed * 137us, [&] { run.stop(run.worker_node(1), "SIGTERM"); });
      const auto result = run.run();
      check_complete(result);
      BOOST_TEST_REQUIRE(result.nodes[4].has_value());
      BOOST_TEST(result.nodes[4]->failure == "");
      requeued += result.summary.requeued;
      // Every gradient is applied, except those of batches that another worker trained again.
      BOOST_TEST(result.summary.lost == 0U);
    }
  BOOST_TEST((requeued > 0U || under_sanitizer));
}

BOOST_AUTO_TEST_CASE(the_last_worker_stops) {
  simulation run{simulated(job_with(), 1, 1)};
  run.at(6ms, [&] { run.stop(run.worker_node(0), "SIGTERM"); });
  const auto result = run.run();
  BOOST_TEST(result.summary.failure == "all workers have left");
}

BOOST_AUTO_TEST_CASE(a_worker_crashes) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= tries(60); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{simulated(job_with({seed % 2 == 0 ? "protocol=SSP" : "protocol=ASYNC_PS"}), 3,
                               1 + seed % 4, seed)};
      run.at(5ms + seed * 137us, [&] { run.crash(run.worker_node(1)); });
      const auto result = run.run();
      check_complete(result);
      lost += result.summary.lost;
    }
  // Some workers crashed after they had sent a gradient to one shard and before they sent it to the
  // next. The part for the next shard is lost.
  BOOST_TEST((lost > 0U || under_sanitizer));
}

// The coordinator gives up a worker that is still alive and continues to send gradients. Shards
// refuse these gradients and count them as `lost`. Other workers train its samples, once.
BOOST_AUTO_TEST_CASE(a_worker_is_given_up_by_mistake) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{simulated(job_with({seed % 2 == 0 ? "protocol=SSP" : "protocol=ASYNC_PS"}), 3,
                               1 + seed % 3, seed)};
      run.at(5ms + seed * 137us,
             [&] { run.network().mislead(run.coordinator_node(), run.worker_node(1)); });
      const auto result = run.run();
      check_complete(result);
      lost += result.summary.lost;
    }
  BOOST_TEST(lost > 0U);
}

// With a bound on staleness, all shards reject a gradient that is too old, and its samples are
// trained again.
BOOST_AUTO_TEST_CASE(stale_gradients_are_rejected) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto result = simulate(simulated(job_with({"async_ps.max_staleness=1"}), 6, 3, seed));
      check_complete(result);
      BOOST_TEST(result.summary.rejected_stale > 0U);
      BOOST_TEST(result.summary.rejected_stale % 3 == 0U);
      BOOST_TEST(result.summary.applied == 2 * train_samples / 16 * 3);
    }
}

BOOST_AUTO_TEST_CASE(a_shard_crashes) {
  for (const auto protocol : {"ASYNC_PS", "SYNC_PS", "SSP"}) {
    simulation run{simulated(job_with({std::string{"protocol="} + protocol}), 2, 2)};
    run.at(6ms, [&] { run.crash(run.ps_node(1)); });
    const auto result = run.run();
    BOOST_TEST(result.summary.failure.find("ps/1") != std::string::npos, result.summary.failure);
    for (auto& node : result.nodes)
      BOOST_TEST((node && !node->failure.empty()));
  }
}

BOOST_AUTO_TEST_CASE(synchronous_protocols_need_all_workers) {
  const std::vector<std::string> settings[] = {
    {"protocol=SYNC_PS"}, {"protocol=RING"}, {"protocol=RING", "ring.shard_optimizer=true"}};
  for (const auto& changes : settings)
    for (const bool politely : {true, false})
      BOOST_TEST_CONTEXT(changes.back() << (politely ? " stop" : " crash")) {
        simulation run{simulated(job_with(changes), 3, 1)};
        run.at(6ms, [&] {
          if (politely)
            run.stop(run.worker_node(2), "SIGTERM");
          else
            run.crash(run.worker_node(2));
        });
        const auto result = run.run();
        BOOST_TEST(result.summary.failure.find("worker/2") != std::string::npos,
                   result.summary.failure);
        for (auto& node : result.nodes)
          BOOST_TEST(node.has_value());
      }
}

// A worker of a ring dies, or its process stops forever. Within twice the deadline, each survivor
// reports the lost rank, its own step, the bucket (part of the gradient) that it waits for, and how
// long it has waited. With 4 ranks, one survivor is not a neighbor of the lost rank.
BOOST_AUTO_TEST_CASE(every_survivor_of_a_ring_says_what_it_waits_for) {
  constexpr auto suspect_after = 400ms;
  // A silent task on another host gets some more time to connect again (`grace`).
  const auto deadline = suspect_after + channel_host_options{}.grace;
  // The fault comes after the links know the job. Before that, they suspect a silent peer after a
  // default time (first_suspicion) instead of the time in the job.
  constexpr auto begin = 12s;
  std::uint64_t seed = 0;
  std::size_t waited = 0;
  for (const std::size_t ranks : {2, 3, 4})
    for (std::size_t victim = 0; victim < ranks; ++victim)
      for (const bool dies : {true, false})
        BOOST_TEST_CONTEXT("rank " << victim << " of " << ranks << (dies ? " dies" : " stops")) {
          auto how = simulated(job_with({"protocol=RING", "epochs=1000", "runtime.bucket_bytes=4",
                                         "runtime.suspect_after_ms=400"}),
                               ranks, 0, ++seed);
          how.channels = true;
          how.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 99ms; };
          simulation run{how};
          const auto node = run.worker_node(victim);
          run.at(begin, [&] { dies ? run.crash(node) : run.freeze(node); });
          run.at(begin + 3 * deadline,
                 [&] { run.thaw(node); }); // Now the frozen node can end, too.
          const auto result = run.run();
          for (std::size_t r = 0; r < ranks; ++r) {
            if (r == victim)
              continue;
            BOOST_TEST_INFO_SCOPE("survivor " << r);
            const auto i = run.worker_node(r);
            BOOST_TEST_REQUIRE(result.nodes[i].has_value());
            BOOST_TEST_INFO_SCOPE(result.nodes[i]->failure);
            BOOST_TEST((result.ended_at[i] > begin));
            BOOST_TEST((result.ended_at[i] <= begin + 2 * deadline));
            BOOST_TEST_REQUIRE(result.nodes[i]->ring.has_value());
            const auto& error = *result.nodes[i]->ring;
            BOOST_TEST(
              (error.lost == task_name{job_kind::worker, static_cast<std::uint32_t>(victim)}));
            BOOST_TEST(error.lost_rank == victim);
            BOOST_TEST(error.rank == r);
            BOOST_TEST(error.ranks == ranks);
            BOOST_TEST(error.step > 2u);
            BOOST_TEST((error.waited <= 2 * deadline));
            if (error.bucket) {
              ++waited;
              BOOST_TEST((dies || error.waited >= suspect_after));
            }
            // The failure of the node contains the error as text.
            BOOST_TEST(result.nodes[i]->failure.find(to_string(error)) != std::string::npos);
          }
          BOOST_TEST_REQUIRE(result.summary.missing.has_value());
          BOOST_TEST(result.summary.missing->index == victim);
        }
  // The error names a bucket if the survivor waited for a bucket, but not if it was still
  // computing.
  BOOST_TEST(waited >= 20u);
}

// Faults while nodes connect, join, and open the view (the set of tasks that train together). In
// each case, all nodes end within about a minute. If the run succeeds, it has trained all samples.
BOOST_AUTO_TEST_CASE(faults_before_training) {
  enum class fault { stop, crash, cut };
  some_cases chosen;
  for (const auto protocol : all_protocols)
    for (const auto what : {fault::stop, fault::crash, fault::cut})
      for (auto when = 0us; when < 2500us; when += 170us)
        for (const sim_node victim : {1, 2, 4}) {
          if (!chosen())
            continue;
          BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)
                             << ", fault " << static_cast<int>(what) << " at node " << victim
                             << " after " << when.count() << " us") {
            simulation run{simulated(
              job_with({"protocol=" + proto::Protocol_Name(protocol), "epochs=1"}), 2, 2)};
            run.at(when, [&, what, victim] {
              if (what == fault::stop)
                run.stop(victim, "SIGTERM");
              else if (what == fault::crash)
                run.crash(victim);
              else
                run.network().cut(run.coordinator_node(), victim);
            });
            const auto result = run.run();
            if (result.summary.failure.empty())
              BOOST_TEST(result.summary.samples == train_samples);
            // If a task ends before it has joined, the coordinator waits for it until a time limit.
            BOOST_TEST(result.virtual_time <= 61s);
            for (auto& node : result.nodes)
              BOOST_TEST(node.has_value());
          }
        }
}

BOOST_AUTO_TEST_CASE(other_data_on_a_node) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      auto how =
        simulated(job_with({"protocol=" + proto::Protocol_Name(protocol), "epochs=1"}), 2, 1);
      auto other = how.job;
      other.mutable_data()->mutable_digits()->set_seed(other.data().digits().seed() + 1);
      how.evaluator = true;
      const auto worker = simulation{how}.worker_node(1);
      const auto evaluator = simulation{how}.evaluator_node();
      how.other_data = {{worker, build_data(other)}};
      const auto failure = simulate(how).summary.failure;
      BOOST_TEST(failure.starts_with("worker/1 cannot take part: bad input: the training data "
                                     "differ from those of coordinator/0: other labels"),
                 failure);
      // The evaluator is not necessary, so the run continues without it.
      how.other_data = {{evaluator, build_data(other)}};
      simulation sim{how};
      BOOST_TEST(sim.run().summary.failure == "");
      BOOST_TEST(std::ranges::any_of(sim.seen().notices, [](const auto& x) {
        return x.text.starts_with("evaluator/0 cannot take part: the training data differ");
      }));
    }
}

BOOST_AUTO_TEST_CASE(a_link_of_the_ring_breaks) {
  for (const auto& [at_once, divided] :
       {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
    const std::string divide = divided ? "true" : "false";
    simulation run{simulated(job_with({"protocol=RING", "ring.shard_optimizer=" + divide}), 3, 0)};
    run.at(at_once ? 1200us : 6ms,
           [&] { run.network().cut(run.worker_node(1), run.worker_node(2)); });
    const auto result = run.run();
    BOOST_TEST(result.summary.failure.find("neighbour") != std::string::npos,
               result.summary.failure);
    for (auto& node : result.nodes)
      BOOST_TEST(node.has_value());
  }
}

BOOST_AUTO_TEST_CASE(the_coordinator_crashes) {
  simulation run{simulated(job_with(), 2, 2)};
  run.at(6ms, [&] { run.crash(run.coordinator_node()); });
  const auto result = run.run();
  for (std::size_t i = 1; i < result.nodes.size(); ++i) {
    BOOST_TEST_REQUIRE(result.nodes[i].has_value());
    BOOST_TEST(result.nodes[i]->failure.find("coordinator") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(the_operator_stops_the_run) {
  simulation run{simulated(job_with(), 2, 2)};
  run.at(6ms, [&] { run.stop(run.coordinator_node(), "SIGINT"); });
  const auto result = run.run();
  BOOST_TEST(result.summary.interrupted);
  for (auto& node : result.nodes)
    BOOST_TEST(node.has_value());
}

BOOST_AUTO_TEST_CASE(large_payloads_travel_in_chunks) {
  // A payload of up to 1 MiB travels inside one message; a larger one is sent in chunks. The single
  // shard of this run has 2.3 MiB of weights.
  const auto job = job_with({"model.layer[0].dense.units=700", "runtime.request_timeout_ms=2000"});
  simulation run{simulated(job, 2, 1)};
  std::uint64_t chunks = 0;
  std::size_t largest = 0;
  run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
    if (content.match_elements<proto::Chunk, payload>()) {
      ++chunks;
      largest = std::max(largest, content.get_as<payload>(1).size());
    }
    return verdict::deliver;
  });
  check_complete(run.run());
  BOOST_TEST(chunks > 100U);
  BOOST_TEST(largest <= std::size_t{1} << 20);
}

// Messages arrive late, out of order, twice, or not at all, at random. Every gradient is applied or
// refused once, and all shards decide the same.
BOOST_AUTO_TEST_CASE(a_thousand_orders_of_messages) {
  std::uint64_t dropped = 0;
  std::uint64_t doubled = 0;
  std::uint64_t duplicates = 0;
  for (std::uint64_t seed = 1; seed <= tries(1'000); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto job =
        job_with({seed % 2 == 0 ? "protocol=SYNC_PS" : "protocol=ASYNC_PS",
                  "data.digits={train: 48 test: 4}", "data.batch=4", "epochs=1",
                  "model.layer[0].dense.units=2",
                  seed % 3 == 0 ? "optimizer.clip_norm=1" : "optimizer.clip_norm=0"});
      simulation run{simulated(job, 2 + seed % 3, 1 + seed % 4, seed)};
      auto random = std::make_shared<std::mt19937_64>(seed);
      // At most two messages are dropped in a row, because a worker may give up after three.
      auto left = std::make_shared<int>(2);
      run.network().judge_with([&, random, left](sim_node, sim_node, const caf::message& x) {
        if (!of_gradients(x))
          return verdict::deliver;
        if (*left > 0 && (*random)() % 40 == 0) {
          --*left;
          ++dropped;
          return verdict::drop;
        }
        if ((*random)() % 12 != 0)
          return verdict::deliver;
        ++doubled;
        return verdict::duplicate;
      });
      const auto x = run.run().summary;
      BOOST_TEST(x.failure == "");
      BOOST_TEST(x.samples == 48U);
      BOOST_TEST(x.split == 0U);
      BOOST_TEST(x.lost == 0U);
      duplicates += x.duplicates;
    }
  BOOST_TEST(dropped > tries(1'000));
  BOOST_TEST(doubled > tries(1'000));
  BOOST_TEST(duplicates > tries(1'000));
}

BOOST_AUTO_TEST_SUITE_END()
