#include "actors/protocols/ssp/step_clocks.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

using troupe::version_pool;
namespace proto = troupe::proto;

BOOST_AUTO_TEST_SUITE(step_clocks)

namespace {

using clocks = troupe::step_clocks;

proto::Pull pull_of(std::uint32_t worker, std::uint64_t clock, bool begins = false) {
  proto::Pull x;
  x.set_worker(worker);
  x.set_clock(clock);
  x.set_begins(begins);
  return x;
}

proto::Commit commit_of(std::uint32_t worker, std::uint64_t step) {
  proto::Commit x;
  x.mutable_id()->set_worker(worker);
  x.set_step(step);
  return x;
}

/// A shard on which each commit makes a new version of the weights.
class shard {
public:
  explicit shard(std::uint64_t bound, std::uint64_t ahead = 0) : clocks_(bound, ahead) {
    clocks_.open(versions_);
  }

  clocks& at() { return clocks_; }

  void commit(const proto::Commit& x) {
    const auto refusal = clocks_.refusal(x);
    BOOST_REQUIRE_MESSAGE(!refusal, refusal.value_or(""));
    BOOST_REQUIRE(versions_->begin());
    versions_->publish(versions_->version() + 1);
    steps_.push_back(x.step());
    clocks_.committed(x);
  }

  struct reading {
    std::uint64_t clock;
    std::uint64_t version;
  };

  void note(const clocks::answer& x) { readings_.push_back({x.clock, x.weights->version}); }

  /// Checks the weights that readers received. They must contain all updates of steps that are more
  /// than `bound` before the reader's own step. With a bound of 0, they must contain no other
  /// updates.
  void check(std::uint64_t bound) const {
    for (auto& x : readings_)
      for (std::size_t i = 0; i < steps_.size(); ++i) {
        const bool seen = i < x.version;
        if (steps_[i] + bound < x.clock && !seen)
          BOOST_FAIL("step " << x.clock << " misses update " << i << ", of step " << steps_[i]);
        if (bound == 0 && steps_[i] >= x.clock && seen)
          BOOST_FAIL("step " << x.clock << " sees update " << i << ", of step " << steps_[i]);
      }
  }

private:
  std::shared_ptr<version_pool> versions_ = std::make_shared<version_pool>(1, 5);
  clocks clocks_;
  /// The steps of all updates, in the order of the updates.
  std::vector<std::uint64_t> steps_;
  std::vector<reading> readings_;
};

/// Simulates workers that have leases of a few batches each. Shards handle messages in random
/// order. Some messages are repeated, and some workers are lost.
class crew {
public:
  crew(std::uint64_t seed, std::uint64_t bound)
    : random_(seed), bound_(bound), shards_(1 + below(3)), workers_(1 + below(5)) {
    for (auto& x : shards_)
      x = std::make_unique<shard>(bound);
    for (auto& x : workers_)
      for (auto leases = 1 + below(3); leases > 0; --leases)
        x.leases.push_back(1 + below(20));
    if (below(4) == 0)
      doomed_ = static_cast<std::uint32_t>(below(workers_.size()));
  }

  void run() {
    while (!all_done()) {
      std::vector<std::uint32_t> able;
      for (std::uint32_t i = 0; i < workers_.size(); ++i)
        if (can_act(i))
          able.push_back(i);
      BOOST_REQUIRE_MESSAGE(!able.empty(), "no worker can continue");
      // The first worker is slow: it seldom acts if another worker can act.
      if (able.front() != 0 || able.size() == 1 || below(8) == 0)
        act(able[below(able.size())]);
      else
        act(able[1 + below(able.size() - 1)]);
      if (below(10) == 0 && !sent_.empty())
        repeat();
      if (doomed_ && steps_made_ > 8)
        lose(*std::exchange(doomed_, std::nullopt));
    }
    for (auto& x : shards_)
      x->check(bound_);
  }

  std::uint64_t waits() const { return waits_; }

private:
  enum class phase { idle, reading, committing, pausing, waiting, done };

  struct worker {
    std::deque<std::uint64_t> leases;
    phase doing = phase::idle;
    std::uint64_t clock = 0;
    bool paused = true;
    /// The shards that the worker still has to ask in its current phase. If the phase is `waiting`,
    /// the last element is the shard whose answer is missing.
    std::vector<std::size_t> open;
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  bool all_done() const {
    return std::ranges::all_of(workers_, [](auto& x) { return x.doing == phase::done; });
  }

  bool can_act(std::uint32_t i) const {
    return workers_[i].doing != phase::done && workers_[i].doing != phase::waiting;
  }

  void act(std::uint32_t i) {
    auto& x = workers_[i];
    switch (x.doing) {
    case phase::idle:
      x.doing = phase::reading;
      x.open = {0};
      break;
    case phase::reading:
      read(i);
      break;
    case phase::pausing:
      pause(i);
      break;
    default:
      commit(i);
    }
  }

  void read(std::uint32_t i) {
    auto& x = workers_[i];
    const auto where = x.open.back();
    const auto question = pull_of(i, x.clock, x.paused);
    sent_.emplace_back(where, question);
    const auto answer = shards_[where]->at().read(question);
    x.clock = answer.clock;
    x.paused = false;
    if (!answer.weights) {
      BOOST_TEST(answer.behind > bound_);
      BOOST_TEST(!answer.slow.empty());
      x.doing = phase::waiting;
      ++waits_;
      return;
    }
    shards_[where]->note(answer);
    x.open.pop_back();
    if (where == 0)
      for (std::size_t k = 1; k < shards_.size(); ++k)
        x.open.push_back(k);
    shuffle(x.open);
    if (x.open.empty()) {
      x.doing = phase::committing;
      all_shards(x.open);
    }
  }

  void commit(std::uint32_t i) {
    auto& x = workers_[i];
    const auto where = x.open.back();
    x.open.pop_back();
    shards_[where]->commit(commit_of(i, x.clock));
    wake(where);
    if (!x.open.empty())
      return;
    ++steps_made_;
    ++x.clock;
    x.doing = phase::idle;
    if (--x.leases.front() > 0)
      return;
    x.leases.pop_front();
    // The next lease sometimes arrives before the worker needs it.
    if (x.leases.empty() || below(3) > 0) {
      x.doing = phase::pausing;
      all_shards(x.open);
    }
  }

  void pause(std::uint32_t i) {
    auto& x = workers_[i];
    const auto where = x.open.back();
    for (auto times = 1 + below(2); times > 0; --times)
      shards_[where]->at().paused(commit_of(i, x.clock - 1));
    pauses_.emplace_back(where, commit_of(i, x.clock - 1));
    wake(where);
    x.open.pop_back();
    if (!x.open.empty())
      return;
    x.paused = true;
    x.doing = x.leases.empty() ? phase::done : phase::idle;
  }

  void wake(std::size_t where) {
    for (const auto i : shards_[where]->at().take_admitted())
      if (workers_[i].doing == phase::waiting)
        workers_[i].doing = phase::reading;
  }

  void repeat() {
    auto& [where, question] = sent_[below(sent_.size())];
    shards_[where]->at().read(question);
    if (pauses_.empty())
      return;
    const auto& [at, last] = pauses_[below(pauses_.size())];
    shards_[at]->at().paused(last);
    wake(at);
  }

  void all_shards(std::vector<std::size_t>& x) {
    for (std::size_t k = 0; k < shards_.size(); ++k)
      x.push_back(k);
    shuffle(x);
  }

  void lose(std::uint32_t i) {
    workers_[i].doing = phase::done;
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      shards_[k]->at().forget(i);
      wake(k);
    }
  }

  void shuffle(std::vector<std::size_t>& x) { std::ranges::shuffle(x, random_); }

  std::mt19937_64 random_;
  std::uint64_t bound_;
  std::vector<std::unique_ptr<shard>> shards_;
  std::vector<worker> workers_;
  std::optional<std::uint32_t> doomed_;
  std::vector<std::pair<std::size_t, proto::Pull>> sent_;
  std::vector<std::pair<std::size_t, proto::Commit>> pauses_;
  std::uint64_t steps_made_ = 0;
  std::uint64_t waits_ = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_worker_waits_for_the_slowest) {
  shard x{1};
  for (const auto i : {0U, 1U, 2U})
    BOOST_TEST(x.at().read(pull_of(i, 0, true)).weights.has_value());
  x.commit(commit_of(0, 0));
  BOOST_TEST(x.at().read(pull_of(0, 1)).weights->version == 1U);
  x.commit(commit_of(0, 1));
  x.commit(commit_of(1, 0));
  const auto early = x.at().read(pull_of(0, 2));
  BOOST_TEST(!early.weights);
  BOOST_TEST(early.behind == 2U);
  BOOST_TEST(early.slow == std::vector<std::uint32_t>{2}, boost::test_tools::per_element());
  BOOST_TEST(x.at().take_admitted().empty());
  x.commit(commit_of(2, 0));
  BOOST_TEST(x.at().take_admitted() == std::vector<std::uint32_t>{0},
             boost::test_tools::per_element());
  BOOST_TEST(x.at().slowest() == 1U);
  BOOST_TEST(x.at().take_admitted().empty(), "told once");
  BOOST_TEST(x.at().read(pull_of(0, 2)).weights->version == 4U);
  BOOST_TEST(x.at().refusal(commit_of(0, 2)).has_value() == false);
  BOOST_TEST(x.at().refusal(commit_of(0, 3)).value()
             == "it is of step 3, the slowest worker is at step 1, and ssp.staleness is 1");
}

BOOST_AUTO_TEST_CASE(without_slack_nobody_sees_updates_of_its_own_step) {
  shard x{0};
  x.at().read(pull_of(0, 0, true));
  x.at().read(pull_of(1, 0, true));
  x.commit(commit_of(0, 0));
  BOOST_TEST(!x.at().read(pull_of(0, 1)).weights);
  x.commit(commit_of(1, 0));
  BOOST_TEST(x.at().read(pull_of(0, 1)).weights->version == 2U);
  x.commit(commit_of(0, 1));
  BOOST_TEST(x.at().read(pull_of(1, 1)).weights->version == 2U, "not 3, which has a step 1");
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_those_without_data) {
  shard x{1};
  x.at().read(pull_of(0, 0, true));
  x.at().read(pull_of(1, 0, true));
  for (const std::uint64_t step : {0, 1}) {
    x.commit(commit_of(0, step));
    BOOST_TEST(x.at().read(pull_of(0, step + 1)).weights.has_value() == (step == 0));
  }
  // Worker 1 has no other batch than this one.
  x.commit(commit_of(1, 0));
  BOOST_TEST(x.at().take_admitted().size() == 1U);
  BOOST_TEST(x.at().slowest() == 1U);
  x.at().paused(commit_of(1, 0));
  BOOST_TEST(x.at().slowest() == 2U);
  for (const std::uint64_t step : {2, 3, 4, 5}) {
    BOOST_TEST(x.at().read(pull_of(0, step)).weights.has_value());
    x.commit(commit_of(0, step));
  }
  // Worker 1 gets data again, and continues with the step of the slowest worker. A repeated request
  // gets the same answer.
  for (int i = 0; i < 2; ++i)
    BOOST_TEST(x.at().read(pull_of(1, 1, true)).clock == 6U);
  x.at().read(pull_of(0, 6));
  x.commit(commit_of(0, 6));
  x.at().read(pull_of(0, 7));
  x.commit(commit_of(0, 7));
  BOOST_TEST(!x.at().read(pull_of(0, 8)).weights);
  x.at().forget(1);
  BOOST_TEST(x.at().take_admitted().size() == 1U);
  // Worker 1 is lost and forgotten. Further messages from it change nothing.
  x.at().read(pull_of(1, 7));
  BOOST_TEST(x.at().slowest() == 8U);
}

BOOST_AUTO_TEST_CASE(an_old_repetition_does_not_count) {
  shard x{0};
  x.at().read(pull_of(0, 0, true));
  x.commit(commit_of(0, 0));
  x.at().paused(commit_of(0, 0));
  x.at().read(pull_of(0, 0, true));
  x.at().read(pull_of(0, 0));
  // Worker 0 has nothing to train, so no worker waits for it.
  x.at().read(pull_of(1, 0, true));
  x.commit(commit_of(1, 1));
  BOOST_TEST(x.at().read(pull_of(1, 2)).weights.has_value());
  // Worker 1 pauses and starts again at the same step. Then the notice of its pause arrives a
  // second time, and must have no effect.
  x.at().paused(commit_of(1, 1));
  x.at().read(pull_of(1, 2, true));
  x.at().paused(commit_of(1, 1));
  x.at().read(pull_of(0, 1, true));
  x.commit(commit_of(0, 2));
  BOOST_TEST(!x.at().read(pull_of(0, 3)).weights, "worker 1 is at step 2");
}

BOOST_AUTO_TEST_CASE(a_thousand_interleavings_keep_the_bound) {
  for (const std::uint64_t bound : {0, 1, 4}) {
    std::uint64_t waits = 0;
    for (std::uint64_t seed = 1; seed <= 1'000; ++seed)
      BOOST_TEST_CONTEXT("bound " << bound << ", seed " << seed) {
        crew x{seed, bound};
        x.run();
        waits += x.waits();
      }
    BOOST_TEST(waits > 1'000U);
  }
}

// The bound is 2, and workers read one step ahead: in step c, a worker reads the weights for step c
// + 1.
BOOST_AUTO_TEST_CASE(weights_of_the_next_step) {
  shard x{2, 1};
  BOOST_TEST(x.at().read(pull_of(0, 0, true)).weights.has_value());
  BOOST_TEST(x.at().read(pull_of(1, 0, true)).weights.has_value());
  x.commit(commit_of(1, 0));
  // Weights for step 2 need no update of step 0.
  BOOST_TEST(x.at().read(pull_of(1, 1)).weights.has_value());
  x.commit(commit_of(1, 1));
  // Weights for step 3 need the updates of step 0.
  const auto early = x.at().read(pull_of(1, 2));
  BOOST_TEST(!early.weights.has_value());
  BOOST_TEST(early.behind == 2U);
  BOOST_TEST((early.slow == std::vector<std::uint32_t>{0}));
  // Meanwhile, the worker computes step 2, which is within the bound. If it repeats an earlier
  // pull, it gets an answer again.
  BOOST_TEST(x.at().read(pull_of(1, 1)).weights.has_value());
  x.commit(commit_of(1, 2));
  BOOST_TEST(x.at().refusal(commit_of(1, 3)).has_value());
  BOOST_TEST(!x.at().read(pull_of(1, 2)).weights.has_value());
  BOOST_TEST(x.at().take_admitted().empty());
  x.commit(commit_of(0, 0));
  BOOST_TEST((x.at().take_admitted() == std::vector<std::uint32_t>{1}));
  BOOST_TEST(x.at().read(pull_of(1, 2)).weights.value().version == 4U);
  BOOST_TEST(!x.at().refusal(commit_of(1, 3)).has_value());
  // An old message that arrives again must not count.
  x.at().paused(commit_of(1, 2));
  BOOST_TEST(x.at().read(pull_of(1, 2)).weights.has_value());
  x.commit(commit_of(0, 1));
  x.commit(commit_of(0, 2));
  BOOST_TEST(x.at().slowest() == 3U);
}

BOOST_AUTO_TEST_SUITE_END()
