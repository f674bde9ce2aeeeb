#include "actors/model/job_file.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/async_ps/slope_probe.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <deque>
#include <functional>
#include <random>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(async_policy)

namespace {

proto::Pacing known(double norm, double staleness) {
  proto::Pacing result;
  result.set_norm(norm);
  result.set_staleness(staleness);
  result.set_damping(1);
  return result;
}

proto::Slopes slopes(double before, double after) {
  proto::Slopes result;
  result.set_before(before);
  result.set_after(after);
  return result;
}

/// Passes n equal weights to the probe, in two ranges.
void read_in_parts(slope_probe& probe, std::size_t n, float value) {
  std::vector<weight_range> ranges;
  for (const auto part : {range{0, n / 3}, range{n / 3, n}}) {
    auto data = payload::floats(part.size());
    std::ranges::fill(data.as_mutable_floats(), value);
    ranges.push_back({part.begin, {}, data});
  }
  probe.read(ranges);
}

std::shared_ptr<const job_context> job_with(const std::vector<std::string>& more) {
  std::vector<std::string> changes{"data.digits={train: 64 test: 20}",
                                   "model.layer[0].dense.units=3", "learning_rate={base: 0.1}"};
  changes.insert(changes.end(), more.begin(), more.end());
  const auto job = example_job("digits_mlp", changes);
  return make_job_context(job, shape_of(*build_data(job).train));
}

/// A shard that has all parameters and an updater. The test plays its actor.
class shard {
public:
  shard(std::shared_ptr<const job_context> context, std::size_t workers)
    : context_(std::move(context)), n_(context_->parameters().size()), weights_(n_, 0.5F),
      pulled_(std::make_shared<pulled_versions>(std::set<std::uint32_t>{0, 1, 2, 3})),
      policy_(context_, {0, n_}, 0, workers, pulled_),
      updater_(*context_, {0, n_}, policy_.keeps_moments()) {}

  std::size_t size() const { return n_; }
  std::span<const float> weights() const { return weights_; }
  std::uint64_t version() const { return version_; }
  async_policy& policy() { return policy_; }

  void pull(std::uint32_t worker) {
    auto copy = payload::floats(n_);
    std::ranges::copy(weights_, copy.as_mutable_floats().begin());
    pulled_->note(worker, {version_, copy});
  }

  /// Pushes a gradient (a sum over two samples) that was computed from the weights of version
  /// `base`.
  void push(std::uint32_t worker, std::span<const float> gradient, std::uint64_t base,
            double loss = 1) {
    contribution x;
    x.header.mutable_id()->set_worker(worker);
    x.header.mutable_id()->set_sequence(++sequence_);
    x.header.set_samples(2);
    x.header.set_base_version(base);
    x.header.set_loss(loss);
    double squares = 0;
    for (const auto g : gradient)
      squares += static_cast<double>(g) * static_cast<double>(g);
    x.header.set_gradient_norm(std::sqrt(squares) / 2);
    x.gradient = payload::floats(n_);
    std::ranges::copy(gradient, x.gradient.values.as_mutable_floats().begin());
    BOOST_TEST_REQUIRE(policy_.take(std::move(x)));
    const auto update = policy_.plan(weights_, version_);
    if (!update.complete) {
      policy_.made(weights_, weights_, {});
      return;
    }
    std::vector<float> updated(n_);
    updater_.apply(weights_, update.gradient, update.samples, updated, update.terms);
    proto::Pushed decided;
    decided.set_staleness(version_ - base);
    policy_.made(weights_, updated, decided);
    weights_ = updated;
    ++version_;
  }

private:
  std::shared_ptr<const job_context> context_;
  std::size_t n_;
  std::vector<float> weights_;
  std::uint64_t version_ = 0;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<pulled_versions> pulled_;
  async_policy policy_;
  range_updater updater_;
};

std::vector<float> random_gradient(std::mt19937& random, std::size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> result(n);
  for (auto& x : result)
    x = normal(random);
  return result;
}

void check_close(std::span<const float> found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_REQUIRE_MESSAGE(std::abs(static_cast<double>(found[i]) - expected[i]) <= 1e-5,
                          "element " << i << ": " << found[i] << " for " << expected[i]);
}

} // namespace

BOOST_AUTO_TEST_CASE(the_limit) {
  BOOST_TEST(limit_factor(5, {}) == 1.0, "nothing is known");
  BOOST_TEST(limit_factor(5, known(0, 4)) == 1.0);
  // The limit is 1 + 8 / 16 = 1.5 times the known norm.
  BOOST_TEST(limit_factor(1.5, known(1, 4)) == 1.0);
  BOOST_TEST(limit_factor(3, known(1, 4)) == 0.5);
  BOOST_TEST(limit_factor(0, known(1, 4)) == 1.0);
}

BOOST_AUTO_TEST_CASE(running_means_follow_slowly) {
  async_pacing pacing{4, true};
  BOOST_TEST(pacing.now().staleness() == 4.0);
  BOOST_TEST(pacing.now().norm() == 0.0);
  pacing.applied(2, 7, 1);
  BOOST_TEST(pacing.now().norm() == 2.0, "the first one counts whole");
  BOOST_TEST(std::abs(pacing.now().staleness() - 4.08) < 1e-12);
  pacing.applied(3, 3, 1);
  BOOST_TEST(std::abs(pacing.now().norm() - 2.02) < 1e-12);
}

BOOST_AUTO_TEST_CASE(the_rate_is_damped_while_updates_overshoot) {
  async_pacing damps{16, true};
  async_pacing free{16, false};
  BOOST_TEST(damps.damping() == 0.25, "1 / sqrt(16)");
  // The slopes say that each step ends before the minimum. So the learning rate rises, up to the
  // job's rate.
  for (int i = 0; i < 16 * 40; ++i)
    damps.moved(slopes(-1, -0.2));
  BOOST_TEST(damps.damping() == 1.0);
  BOOST_TEST(damps.now().overshoots() == 0u);
  // The slopes say that steps go past the minimum. So the learning rate falls.
  for (int i = 0; i < 16 * 10; ++i)
    for (auto* x : {&damps, &free})
      x->moved(slopes(-0.1, 1));
  BOOST_TEST(damps.damping() == 1.0 / 16, "and no further than that");
  BOOST_TEST(damps.now().overshoots() > 16u);
  BOOST_TEST(free.damping() == 1.0);
  BOOST_TEST(free.now().overshoots() == 0u);
  const auto before = damps.damping();
  damps.moved(slopes(std::nan(""), 1));
  damps.moved(slopes(-1, INFINITY));
  BOOST_TEST(damps.damping() == before);
}

BOOST_AUTO_TEST_CASE(the_guard_halves_the_rate_while_the_loss_grows) {
  async_pacing guarded{4, true};
  async_pacing free{4, false};
  const auto apply = [&](int times, double loss) {
    for (int i = 0; i < times; ++i)
      for (auto* x : {&guarded, &free}) {
        x->applied(1, 3, loss);
        x->moved(slopes(-1, 0));
      }
  };
  apply(200, 1);
  BOOST_TEST(guarded.now().halvings() == 0u);
  BOOST_TEST(guarded.damping() == 1.0);
  apply(60, 5);
  apply(60, 1); // the running mean of the loss decreases
  const auto halvings = guarded.now().halvings();
  BOOST_TEST(halvings >= 2u);
  apply(1000, 1);
  BOOST_TEST(guarded.now().halvings() == halvings);
  BOOST_TEST(guarded.damping() == std::ldexp(1, -static_cast<int>(halvings)), "it stays that low");
  BOOST_TEST(free.now().halvings() == 0u);
  BOOST_TEST(free.damping() == 1.0);
}

// In a run, steps go past the minimum and the loss grows. Then the state is saved as for a
// checkpoint. From there on, the old object and the restored object must behave in the same way.
BOOST_AUTO_TEST_CASE(a_pace_goes_on_from_a_checkpoint) {
  const auto future = [](async_pacing& x) {
    std::vector<std::string> seen;
    for (int i = 0; i < 100; ++i) {
      x.applied(1 + i % 3, 3, i < 50 ? 0.9 : 8);
      x.moved(slopes(-1, i < 30 ? 0.9 : -0.5));
      seen.push_back(x.state().ShortDebugString());
    }
    return seen;
  };
  async_pacing first{4, true};
  for (int i = 0; i < 300; ++i) {
    first.applied(2, 3 + i % 5, i < 100 ? 1 : 3);
    first.moved(slopes(-0.5, i % 7 == 0 ? 2 : 0.1));
  }
  BOOST_TEST_REQUIRE(first.now().halvings() > 0u);
  const auto state = first.state();
  async_pacing second{4, true};
  BOOST_TEST(second.restore(state));
  BOOST_TEST(future(first) == future(second), boost::test_tools::per_element());

  // With four times as many workers, the damping is halved, because it begins at 1 / sqrt(workers).
  async_pacing more{16, true};
  BOOST_TEST(more.restore(state));
  BOOST_TEST(more.damping() == state.pacing().damping() / 2);
  BOOST_TEST(more.now().staleness() == 16.0);
  BOOST_TEST(more.now().halvings() == state.pacing().halvings());
  async_pacing fewer{1, true};
  BOOST_TEST(fewer.restore(state));
  BOOST_TEST(fewer.damping() == state.most_damping(), "no more than the guard allows");
}

BOOST_AUTO_TEST_CASE(a_pace_that_makes_no_sense) {
  async_pacing source{4, true};
  source.applied(1, 3, 1);
  const auto good = source.state();
  const std::vector<std::function<void(proto::PacingState&)>> faults{
    [](auto& x) { x.mutable_pacing()->set_damping(0); },
    [](auto& x) { x.mutable_pacing()->set_damping(1.5); },
    [](auto& x) { x.mutable_pacing()->set_damping(std::nan("")); },
    [](auto& x) { x.mutable_pacing()->set_norm(-1); },
    [](auto& x) { x.mutable_pacing()->set_norm(INFINITY); },
    [](auto& x) { x.mutable_pacing()->set_staleness(0); },
    [](auto& x) { x.set_most_damping(0); },
    [](auto& x) { x.set_workers(0); },
    [](auto& x) { x.set_slope_after(INFINITY); },
    [](auto& x) { x.set_loss(std::nan("")); },
    [](auto& x) { x.set_gradients_since_low(x.gradients() + 1); },
    [](auto& x) { x.Clear(); }};
  for (std::size_t i = 0; i < faults.size(); ++i)
    BOOST_TEST_CONTEXT("fault " << i) {
      auto bad = good;
      faults[i](bad);
      async_pacing x{4, true};
      const auto before = x.state().ShortDebugString();
      BOOST_TEST(!x.restore(bad));
      BOOST_TEST(x.state().ShortDebugString() == before);
    }
}

// Loss function: f(w) = a w^2 / 2 in many dimensions. So the slope at the end of a step from w to
// w' is a w'.
BOOST_AUTO_TEST_CASE(slopes_along_the_way) {
  for (const std::size_t n : {1, 15, 16, 17, 1000, 70'000, 1'000'003}) {
    slope_probe probe{n};
    const auto gradient_at = [&](float w) { return std::vector<float>(n, 3 * 2 * w); };
    read_in_parts(probe, n, 1);
    BOOST_TEST(!probe.see(gradient_at(1), 3).has_value(), "nothing to compare with");
    read_in_parts(probe, n, -0.5F);
    const auto past = probe.see(gradient_at(-0.5F), 3);
    BOOST_TEST_REQUIRE(past.has_value());
    BOOST_TEST(std::abs(past->before() + 1) < 1e-6);
    BOOST_TEST(std::abs(past->after() - 0.5) < 1e-6);
    read_in_parts(probe, n, 0);
    BOOST_TEST(std::abs(probe.see(gradient_at(0), 3)->after()) < 1e-6);
    BOOST_TEST(!probe.see(gradient_at(0), 3).has_value(), "the weights have not moved");
  }
}

BOOST_AUTO_TEST_CASE(versions_of_gradients_to_come) {
  pulled_versions x{{0, 1}, 3};
  for (std::uint64_t version = 5; version < 9; ++version)
    for (const std::uint32_t worker : {0, 2})
      for (int again = 0; again < 2; ++again)
        x.note(worker, {version, payload::floats(version)});
  BOOST_TEST(x.find(0, 5).empty());
  for (std::uint64_t version = 6; version < 9; ++version) {
    BOOST_TEST(x.find(0, version).as_floats().size() == version);
    BOOST_TEST(x.find(1, version).empty());
    BOOST_TEST(x.find(2, version).empty());
  }
  x.drop(0);
  BOOST_TEST(x.find(0, 8).empty());
}

// With pull_ahead n, a worker computes n + 1 chains of gradients in turns. Each chain has its own
// momentum, as if it were a worker.
BOOST_AUTO_TEST_CASE(chains_of_a_worker_are_like_workers) {
  const auto ahead = job_with({"pull_ahead=2", "optimizer={kind: MOMENTUM}"});
  const auto plain = job_with({"optimizer={kind: MOMENTUM}"});
  BOOST_TEST(chains_of(ahead->job, 2) == 6U);
  BOOST_TEST(chains_of(plain->job, 6) == 6U);
  BOOST_TEST((compensation_of(ahead->job, 1) == proto::AsyncPs::AUTO));
  BOOST_TEST((compensation_of(plain->job, 1) == proto::AsyncPs::NONE));
  const auto n = plain->parameters().size();
  troupe::async_policy one{ahead, {0, n}, 0, 1, nullptr};
  troupe::async_policy three{plain, {0, n}, 0, 3, nullptr};
  range_updater updates_one{*ahead, {0, n}, true};
  range_updater updates_three{*plain, {0, n}, true};
  std::vector<float> weights_one(n, 0.5F);
  auto weights_three = weights_one;
  std::mt19937 random{3};
  for (std::uint64_t step = 1; step <= 12; ++step) {
    proto::Commit header;
    header.set_samples(2);
    header.mutable_id()->set_incarnation(1);
    const auto gradient = random_gradient(random, n);
    auto data = payload::floats(n);
    std::ranges::copy(gradient, data.as_mutable_floats().begin());
    const auto push = [&](troupe::async_policy& policy, range_updater& updater,
                          std::uint32_t worker, std::uint64_t sequence,
                          std::vector<float>& weights) {
      header.mutable_id()->set_worker(worker);
      header.mutable_id()->set_sequence(sequence);
      policy.take({header, data});
      const auto update = policy.plan(weights, step);
      const auto before = weights;
      updater.apply(before, update.gradient, update.samples, weights, update.terms);
      policy.made(before, weights, {});
    };
    push(one, updates_one, 0, step, weights_one);
    push(three, updates_three, static_cast<std::uint32_t>(step % 3), 1 + (step - 1) / 3,
         weights_three);
    BOOST_TEST(weights_one == weights_three, boost::test_tools::per_element());
  }
}

// Momentum per worker, as in the paper of DANA-Slim: a worker keeps the momentum m and sends g +
// momentum * m.
BOOST_AUTO_TEST_CASE(moments_of_workers_are_those_of_dana_slim) {
  for (const auto* const kind : {"MOMENTUM", "NESTEROV"}) {
    const auto context = job_with({std::string{"optimizer={kind: "} + kind + " momentum: 0.9}"});
    constexpr std::size_t workers = 3;
    // The test reports no slopes, so the damping keeps its initial value.
    const double rate = 0.1 * async_pacing::first_damping(workers);
    shard tested{context, workers};
    const auto n = tested.size();
    std::vector<std::vector<double>> moments(workers, std::vector<double>(n, 0.0));
    std::vector<double> expected(tested.weights().begin(), tested.weights().end());
    std::mt19937 random{7};
    for (int step = 0; step < 30; ++step) {
      const auto worker = static_cast<std::uint32_t>(random() % workers);
      const auto gradient = random_gradient(random, n);
      tested.push(worker, gradient,
                  tested.version() - std::min<std::uint64_t>(tested.version(), 2));
      for (std::size_t i = 0; i < n; ++i) {
        const double g = gradient[i] / 2.0;
        auto& m = moments[worker][i];
        m = 0.9 * m + g;
        expected[i] -= rate * (g + 0.9 * m);
      }
      check_close(tested.weights(), expected);
    }
    const auto mean = tested.policy().moment(30);
    std::vector<double> of_all(n, 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (const auto& m : moments)
        of_all[i] += m[i] / workers;
    check_close(mean.as_floats(), of_all);
  }
}

BOOST_AUTO_TEST_CASE(adam_looks_ahead_by_the_workers_own_mean) {
  const auto context = job_with({"optimizer={kind: ADAM}", "learning_rate={base: 0.01}"});
  shard tested{context, 2};
  const auto n = tested.size();
  std::vector<std::vector<double>> means(2, std::vector<double>(n, 0.0));
  std::vector<double> squares(n, 0.0);
  std::vector<double> expected(tested.weights().begin(), tested.weights().end());
  std::array<int, 2> steps{};
  std::mt19937 random{9};
  for (int t = 1; t <= 20; ++t) {
    const std::uint32_t worker = t % 3 == 0 ? 1 : 0;
    const auto gradient = random_gradient(random, n);
    tested.push(worker, gradient, tested.version());
    const int k = ++steps[worker];
    for (std::size_t i = 0; i < n; ++i) {
      const double g = gradient[i] / 2.0;
      auto& m = means[worker][i];
      m = 0.9 * m + 0.1 * g;
      squares[i] = 0.999 * squares[i] + 0.001 * g * g;
      const double ahead = (0.9 * m + 0.1 * g) / (1 - std::pow(0.9, k + 1));
      expected[i] -= 0.01 * async_pacing::first_damping(2) * ahead
        / (std::sqrt(squares[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
    check_close(tested.weights(), expected);
  }
}

// With `buffer: 2`, an update uses the mean of two gradients. At the end, an update uses a single
// gradient, because no second one arrives in time.
BOOST_AUTO_TEST_CASE(gradients_are_held) {
  const auto context =
    job_with({"optimizer={kind: SGD clip_norm: 1000}", "async_ps={buffer: 2 compensation: NONE}"});
  shard tested{context, 3};
  BOOST_TEST(!tested.policy().keeps_moments());
  tested.push(0, std::vector<float>(tested.size(), 2), 0);
  BOOST_TEST(tested.version() == 0U);
  BOOST_TEST(!tested.policy().ready());
  tested.push(1, std::vector<float>(tested.size(), 6), 0);
  BOOST_TEST(tested.version() == 1U);
  BOOST_TEST(std::abs(tested.weights()[0] - (0.5F - 0.1F * 2)) < 1e-6F, "(2 + 6) / 4 samples");
  tested.policy().set_idle({0, 1, 2});
  BOOST_TEST(!tested.policy().ready(), "nothing is held");
  tested.policy().set_idle({});
  tested.push(0, std::vector<float>(tested.size(), 5), 1);
  tested.policy().set_idle({0, 1});
  BOOST_TEST(!tested.policy().ready(), "worker 2 has a lease");
  tested.policy().set_idle({0, 1, 2});
  BOOST_TEST_REQUIRE(tested.policy().ready());
  BOOST_TEST(tested.policy().parts().empty());
  const auto rest = tested.policy().plan(tested.weights(), 1);
  BOOST_TEST(rest.complete);
  BOOST_TEST(rest.samples == 2U);
  BOOST_TEST(rest.gradient[0] == 5.0F);
  tested.policy().made(tested.weights(), tested.weights(), {});
  BOOST_TEST(!tested.policy().ready());
}

// With a buffer and the compensation AUTO, all workers share one momentum, and updates follow
// Nesterov's rule.
BOOST_AUTO_TEST_CASE(held_gradients_have_one_moment) {
  const auto context = job_with({"optimizer={kind: MOMENTUM momentum: 0.5}", "async_ps.buffer=2"});
  shard tested{context, 4};
  BOOST_TEST(!tested.policy().keeps_moments());
  double w = 0.5;
  double v = 0;
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::uint32_t i = 0; i < 2; ++i)
      tested.push(2 * (step % 2) + i, std::vector<float>(tested.size(), i == 0 ? 2 : 4), step);
    const double mean = (2 + 4) / 4.0;
    v = 0.5 * v + mean;
    w -= 0.1 * async_pacing::first_damping(2) * (mean + 0.5 * v);
    BOOST_TEST(tested.version() == step + 1);
    BOOST_TEST(std::abs(static_cast<double>(tested.weights()[0]) - w) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(a_rate_by_staleness) {
  const auto context =
    job_with({"optimizer={kind: SGD}", "async_ps={compensation: STALENESS_RATE}"});
  shard tested{context, 4};
  const std::vector<float> ones(tested.size(), 2.0F);
  tested.push(0, ones, 0);
  BOOST_TEST(std::abs(tested.weights()[0] - 0.4F) < 1e-6F);
  for (std::uint32_t i = 1; i < 4; ++i)
    tested.push(i, ones, 0); // staleness 1, 2 and 3
  const double expected = 0.4 - 0.1 * (1 + 1.0 / 2 + 1.0 / 3);
  BOOST_TEST(std::abs(static_cast<double>(tested.weights()[0]) - expected) < 1e-6);
}

BOOST_AUTO_TEST_CASE(a_gap_shortens_steps) {
  const auto context = job_with({"optimizer={kind: SGD}", "async_ps={compensation: GAP_AWARE}"});
  shard tested{context, 2};
  const std::vector<float> ones(tested.size(), 2.0F);
  tested.pull(0);
  tested.pull(1);
  tested.push(0, ones, 0);
  // Since version 0, the weights have moved by one step of such a gradient. This halves the next
  // gradient.
  tested.push(1, ones, 0);
  BOOST_TEST(std::abs(tested.weights()[0] - (0.5F - 0.1F - 0.05F)) < 1e-6F);
}

BOOST_AUTO_TEST_CASE(a_correction_by_the_distance) {
  const auto context = job_with({"optimizer={kind: SGD}", "async_ps={compensation: DC}"});
  shard tested{context, 2};
  const std::vector<float> ones(tested.size(), 2.0F);
  tested.pull(0);
  tested.pull(1);
  tested.push(0, ones, 0);
  tested.push(1, ones, 0);
  const double q = 0.05 + 0.05 * 0.95;
  const double g = 1 + 2 * -0.1 / std::sqrt(q + 1e-7);
  BOOST_TEST(std::abs(static_cast<double>(tested.weights()[0]) - (0.4 - 0.1 * g)) < 1e-5);
}

// Statistics of batch_norm are averages, and no gradients.
BOOST_AUTO_TEST_CASE(statistics_are_not_corrected_by_the_distance) {
  std::vector<std::vector<float>> statistics;
  std::vector<float> weight;
  for (const std::string kind : {"NONE", "DC"}) {
    const auto context = job_with(
      {"model={layer {dense {units: 3}} layer {batch_norm {}} layer {dense {units: 10}} loss: "
       "SOFTMAX_CROSS_ENTROPY}",
       "optimizer={kind: SGD}", "async_ps={compensation: " + kind + "}"});
    shard tested{context, 2};
    const std::vector<float> fours(tested.size(), 8.0F);
    tested.pull(0);
    tested.pull(1);
    tested.push(0, fours, 0);
    tested.push(1, fours, 0);
    auto& found = statistics.emplace_back();
    for (const auto& tensor : context->parameters().entries())
      if (tensor.kind == parameter_kind::state)
        for (auto i = tensor.offset; i < tensor.offset + tensor.size; ++i)
          found.push_back(tested.weights()[i]);
    weight.push_back(tested.weights()[0]);
  }
  BOOST_TEST(!statistics[0].empty());
  BOOST_TEST(statistics[0] == statistics[1]);
  BOOST_TEST(weight[0] != weight[1]);
}

BOOST_AUTO_TEST_CASE(one_worker_is_never_stale) {
  for (const auto* const kind : {"AUTO", "STALENESS_RATE", "GAP_AWARE", "DC"}) {
    const auto context = job_with({std::string{"async_ps={compensation: "} + kind + "}"});
    BOOST_TEST((compensation_of(context->job, 1) == proto::AsyncPs::NONE));
    BOOST_TEST((compensation_of(context->job, 2) != proto::AsyncPs::NONE));
    shard tested{context, 1};
    BOOST_TEST(!tested.policy().keeps_moments());
    BOOST_TEST(!tested.policy().pacing().has_value());
  }
}

BOOST_AUTO_TEST_CASE(moments_that_were_restored) {
  const auto context = job_with({});
  shard tested{context, 2};
  const std::vector<float> before(tested.size(), 3.0F);
  tested.policy().restore_moment(before, 40);
  BOOST_TEST(tested.policy().moment(41).as_floats()[0] == 3.0F);
  const std::vector<float> zeros(tested.size(), 0.0F);
  tested.push(1, zeros, 0);
  BOOST_TEST(std::abs(tested.policy().moment(41).as_floats()[0] - 2.7F) < 1e-6F);
  tested.policy().forget(1, 0);
  tested.push(1, zeros, 1);
  BOOST_TEST(std::abs(tested.policy().moment(41).as_floats()[0] - 2.7F) < 1e-6F,
             "a worker that comes anew begins where all began");
}

// Two workers have made two updates each. A run that continues counts them as four updates of one
// moment. The mean gradient that the optimizer sees must stay the same.
BOOST_AUTO_TEST_CASE(a_restored_moment_has_the_right_correction_of_its_bias) {
  const auto context = job_with({"optimizer={kind: ADAM}"});
  shard tested{context, 2};
  const std::vector<float> ones(tested.size(), 2.0F); // the sum over two samples
  for (std::uint32_t step = 0; step < 4; ++step)
    tested.push(step % 2, ones, step);
  const auto moment = tested.policy().moment(4).as_floats()[0];
  BOOST_TEST(std::abs(moment / (1 - std::pow(0.9F, 4.0F)) - 1) < 1e-5F);
  // The same is true if no worker of the new run has pushed, or if all who have are lost.
  shard next{context, 2};
  next.policy().restore_moment(std::vector<float>(next.size(), moment), 4);
  BOOST_TEST(next.policy().moment(4).as_floats()[0] == moment);
  for (std::uint32_t step = 0; step < 3; ++step)
    next.push(0, ones, step);
  next.policy().forget(0, 0);
  const auto later = next.policy().moment(7).as_floats()[0];
  BOOST_TEST(std::abs(later / (1 - std::pow(0.9F, 7.0F)) - 1) < 1e-5F);
}

contribution committed(std::uint32_t worker, std::uint64_t samples, std::size_t elements) {
  contribution result;
  result.header.mutable_id()->set_worker(worker);
  result.header.mutable_id()->set_sequence(1);
  result.header.set_samples(samples);
  if (samples > 0) {
    result.gradient = payload::floats(elements);
    std::ranges::fill(result.gradient.values.as_mutable_floats(), 1.0F);
  }
  return result;
}

BOOST_AUTO_TEST_CASE(all_gradients_that_wait_are_undecided) {
  const auto context = job_with({});
  shard tested{context, 3};
  auto& policy = tested.policy();
  for (std::uint32_t worker = 0; worker < 3; ++worker)
    BOOST_TEST_REQUIRE(policy.take(committed(worker, 2, tested.size())));
  for (std::size_t left = 3; left > 0; --left) {
    BOOST_TEST(policy.parts().size() == 1U);
    BOOST_TEST_REQUIRE(policy.undecided().size() == left);
    BOOST_TEST(policy.undecided().front().worker() == 3 - left);
    policy.plan(tested.weights(), 0);
    policy.made(tested.weights(), tested.weights(), {});
  }
  BOOST_TEST(policy.undecided().empty());
}

BOOST_AUTO_TEST_CASE(commits_without_samples) {
  for (const auto* const kind : {"NONE", "AUTO", "STALENESS_RATE", "GAP_AWARE", "DC"}) {
    const auto context = job_with({std::string{"async_ps={compensation: "} + kind + "}"});
    shard tested{context, 2};
    auto& policy = tested.policy();
    BOOST_TEST_REQUIRE(policy.take(committed(1, 0, tested.size())));
    BOOST_TEST(policy.plan(tested.weights(), 0).samples == 0U, kind);
    policy.made(tested.weights(), tested.weights(), {});
    BOOST_TEST(!policy.ready());
  }
}

// Shard 0 decides about the damping. Other shards begin with the same damping, and later take the
// newest one that they receive.
BOOST_AUTO_TEST_CASE(shards_are_told_the_damping) {
  const auto context = job_with({});
  const range where{0, context->parameters().size()};
  const std::vector<float> weights(where.size());
  const auto pulled = std::make_shared<pulled_versions>(std::set<std::uint32_t>{0, 1, 2, 3});
  troupe::async_policy first{context, where, 0, 4, pulled};
  troupe::async_policy other{context, where, 1, 4, pulled};
  const auto factor_of = [&](troupe::async_policy& x, const proto::Slopes& seen) {
    contribution c;
    c.header.mutable_id()->set_sequence(1);
    c.header.set_samples(2);
    c.header.set_gradient_norm(1);
    *c.header.mutable_slopes() = seen;
    c.gradient = payload::floats(where.size());
    std::ranges::fill(c.gradient.values.as_mutable_floats(), 1.0F);
    BOOST_TEST_REQUIRE(x.take(std::move(c)));
    const auto result = x.plan(weights, 0).terms.rate_factor;
    x.made(weights, weights, {});
    return result;
  };
  BOOST_TEST(factor_of(other, {}) == 0.5);
  BOOST_TEST(!other.new_damping().has_value());
  std::vector<proto::Damping> told;
  for (int i = 0; i < 40; ++i) {
    factor_of(first, slopes(-1, -1));
    if (auto news = first.new_damping())
      told.push_back(*std::move(news));
  }
  BOOST_TEST(told.size() > 15u, "each change by more than one percent");
  for (auto& x : told) {
    other.set_damping(x);
    BOOST_TEST(factor_of(other, {}) == x.factor());
  }
  const double now = factor_of(first, {});
  BOOST_TEST(now > 0.7);
  BOOST_TEST(std::abs(factor_of(other, {}) / now - 1) < 0.02);
  other.set_damping(told.front());
  BOOST_TEST(factor_of(other, {}) == told.back().factor(), "one that came late");
  first.set_damping(told.front());
  BOOST_TEST(factor_of(first, {}) == now, "shard 0 is told nothing");
  BOOST_TEST(!first.new_damping().has_value());
}

BOOST_AUTO_TEST_SUITE_END()
