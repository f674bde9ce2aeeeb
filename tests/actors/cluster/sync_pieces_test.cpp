// With SYNC_PS over links, gradients and weights are sent in pieces. The weights equal those of a
// run in one process, which sends nothing, bit for bit.

#include "actors/checkpoint/resume.hpp"
#include "messages/pieces.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(sync_pieces)

namespace {

/// A job with 101,770 parameters, which one shard receives in 7 pieces. Two workers make 10 steps.
/// In the last step of an epoch, one of them has a small batch or none.
proto::Job job_with(const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 150 test: 20}", "data.batch=16", "epochs=2",
                                   "protocol=SYNC_PS"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

/// Counts messages in a simulated run: those with this number of elements, the first of type T.
template <class T, std::size_t Elements = 2>
struct piece_counter {
  bool operator()(const caf::message& x) {
    if (!x.match_elements<proto::Frame, caf::message>())
      return false;
    const auto& inner = x.get_as<caf::message>(1);
    if (inner.size() != Elements || !inner.match_element<T>(0))
      return false;
    ++seen;
    return true;
  }

  std::uint64_t seen = 0;
};

struct counts {
  std::uint64_t pieces = 0;
  std::uint64_t new_weights = 0;
  /// Pushes of whole gradients, alone or together with their commit.
  std::uint64_t pushes = 0;
  std::uint64_t pulls = 0;
};

/// Runs a simulation, which must succeed. Returns the hash of its weights.
std::string hash_of(simulation& run, counts* seen = nullptr, message_judge more = nullptr) {
  piece_counter<proto::PushPiece> pieces;
  piece_counter<proto::NewWeights> new_weights;
  piece_counter<proto::Push> pushes;
  piece_counter<proto::Commit> commits;
  piece_counter<proto::Pull, 1> pulls;
  run.network().judge_with([&](sim_node from, sim_node to, const caf::message& x) {
    pieces(x);
    new_weights(x);
    pushes(x);
    commits(x);
    pulls(x);
    return more ? more(from, to, x) : verdict::deliver;
  });
  const auto result = run.run().summary;
  BOOST_TEST(result.failure == "");
  BOOST_TEST(result.split == 0U);
  if (seen)
    *seen = {pieces.seen, new_weights.seen, pushes.seen + commits.seen, pulls.seen};
  return result.weights_sha256;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_bits_of_one_process) {
  const std::vector<std::string> settings[] = {
    {"optimizer={kind: MOMENTUM momentum: 0.9}"},
    {"optimizer={kind: ADAM}", "learning_rate.base=0.01"},
    {"optimizer={kind: SGD weight_decay: 0.1 l1: 0.01}"},
    {"accumulate=2"},
    {"exchange_precision=BFLOAT16"},
    {"model.layer[0].dense.units=2"}};
  for (const auto& changes : settings)
    for (const std::uint32_t workers : {1, 2, 5})
      for (const std::uint32_t ps : {1, 3})
        BOOST_TEST_CONTEXT(changes[0] << ", " << workers << " workers, " << ps << " shards") {
          const auto job = job_with(changes);
          const auto expected = train_here(job, workers, ps);
          BOOST_TEST(expected.failure == "");
          simulation run{simulated(job, workers, ps)};
          counts seen;
          BOOST_TEST(hash_of(run, &seen) == expected.weights_sha256);
          BOOST_TEST(seen.pieces > 0U);
          BOOST_TEST(seen.pushes == 0U);
          // Workers pull only the weights of the first step, and the coordinator pulls after each
          // epoch. All other weights are sent in pieces, but not to a worker that has no samples in
          // the step.
          BOOST_TEST(seen.new_weights >= seen.pieces * 9 / 10);
          BOOST_TEST(seen.pulls <= (workers + 3) * ps);
        }
}

// Gradients are sent as a whole here, for one of two reasons: an update needs the whole gradient,
// or there are backup workers and shard 0 chooses which gradients take effect.
BOOST_AUTO_TEST_CASE(whole_gradients_if_an_update_needs_them) {
  const std::string settings[] = {"optimizer.clip_norm=1", "optimizer={kind: LAMB}",
                                  "sync_ps.backup_workers=1"};
  for (const auto& change : settings)
    BOOST_TEST_CONTEXT(change) {
      simulation run{simulated(job_with({change}), 2, 2)};
      counts seen;
      const auto hash = hash_of(run, &seen);
      BOOST_TEST(seen.pieces == 0U);
      BOOST_TEST(seen.new_weights == 0U);
      BOOST_TEST(seen.pushes > 0U);
      if (!change.starts_with("sync_ps"))
        BOOST_TEST(hash == train_here(job_with({change}), 2, 2).weights_sha256);
    }
}

// Pieces arrive late, twice or not at all. If a piece is lost, the whole gradient or range is sent
// again, and all pieces of this gradient or range are ignored.
BOOST_AUTO_TEST_CASE(pieces_that_are_lost_or_repeated) {
  const auto job = job_with({"runtime.request_timeout_ms=20"});
  const auto expected = train_here(job, 3, 2).weights_sha256;
  std::uint64_t pushes = 0;
  std::uint64_t pulls = 0;
  for (std::uint64_t seed = 1; seed <= tries(40); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{simulated(job, 3, 2, seed)};
      std::mt19937_64 random{seed};
      int left = 6;
      counts seen;
      const auto hash = hash_of(run, &seen, [&](sim_node, sim_node, const caf::message& x) {
        piece_counter<proto::PushPiece> piece;
        piece_counter<proto::NewWeights> weights;
        if (!piece(x) && !weights(x))
          return verdict::deliver;
        const auto fate = random() % 20;
        if (fate == 0 && left-- > 0)
          return verdict::drop;
        return fate < 5 ? verdict::duplicate : verdict::deliver;
      });
      BOOST_TEST(hash == expected);
      pushes += seen.pushes;
      pulls += seen.pulls;
    }
  BOOST_TEST(pushes > 0U);
  BOOST_TEST(pulls > tries(40) * 6U);
}

// A worker or the shard crashes after piece 1, 2, 3, ... of the first steps. The run ends. A second
// run continues from the last checkpoint and gets the result of an undisturbed run, because a
// checkpoint contains no part of an incomplete step.
template <class T>
void crash_after_each(bool worker) {
  const auto job =
    job_with({"output=out", "checkpoint={every_steps: 1 keep: 40}", "data.batch=8", "epochs=1"});
  const auto options = simulated(job, 2, 1);
  const auto expected = simulate(options).summary.weights_sha256;
  some_cases chosen;
  std::uint64_t resumed = 0;
  // In each step, two workers send 7 pieces each. So the third step ends with piece 42.
  for (std::uint64_t n = 1; n <= 42; ++n) {
    if (!chosen())
      continue;
    BOOST_TEST_CONTEXT("piece " << n) {
      auto first = options;
      first.files = std::make_shared<memory_storage>();
      simulation run{first};
      piece_counter<T> pieces;
      run.network().judge_with([&](sim_node, sim_node, const caf::message& x) {
        if (pieces(x) && pieces.seen == n)
          run.at(run.elapsed(), [&] { run.crash(worker ? run.worker_node(1) : run.ps_node(0)); });
        return verdict::deliver;
      });
      const auto result = run.run();
      const auto* const name = worker ? "worker/1" : "ps/0";
      BOOST_TEST(result.summary.failure.find(name) != std::string::npos, result.summary.failure);
      for (auto& node : result.nodes)
        BOOST_TEST(node.has_value());
      auto second = options;
      second.files = std::make_shared<memory_storage>();
      if (!first.files->directories(checkpoint_folder("out")).empty()) {
        const auto context = make_job_context(job, shape_of(*options.data.train));
        second.resume =
          std::make_shared<checkpoint>(*choose_checkpoint(*first.files, "out", "", *context).from);
        ++resumed;
      }
      const auto end = simulate(second).summary;
      BOOST_TEST(end.failure == "");
      BOOST_TEST(end.weights_sha256 == expected);
    }
  }
  BOOST_TEST((resumed > 10U || under_sanitizer));
}

BOOST_AUTO_TEST_CASE(a_worker_crashes_between_pieces_of_a_gradient) {
  crash_after_each<proto::PushPiece>(true);
}

BOOST_AUTO_TEST_CASE(a_worker_crashes_between_pieces_of_weights) {
  crash_after_each<proto::NewWeights>(true);
}

BOOST_AUTO_TEST_CASE(a_shard_crashes_between_pieces) {
  crash_after_each<proto::NewWeights>(false);
}

BOOST_AUTO_TEST_SUITE_END()
