#include "actors/model/job_context.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/graph/operations.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(range_updater)

namespace {

constexpr std::uint64_t records = 100;

/// A job whose updates depend on everything: momentum, weight decay, warm-up, and a cosine
/// schedule.
std::shared_ptr<const job_context> context() {
  auto job = digits_job();
  job.mutable_optimizer()->set_kind(proto::MOMENTUM);
  job.mutable_optimizer()->set_weight_decay(0.01F);
  job.mutable_learning_rate()->set_warmup_epochs(0.5F);
  job.mutable_learning_rate()->mutable_cosine();
  return make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, records});
}

/// A job with two tensors of 6 elements each, and three elements of layer state between them.
std::shared_ptr<const job_context> context_with_state(const optimizer& rule) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 2});
  const auto first = g.variable("first", {3, 2}, initializer::constant(1));
  g.variable("mean", {3}, initializer::constant(1), parameter_kind::state, 0.25);
  const auto second = g.variable("second", {2, 3}, initializer::constant(1));
  auto options = cpu_plan_options();
  options.loss = sum(matmul(matmul(x, first, false, true), second, false, true));
  options.gradients = true;
  auto result = std::make_shared<job_context>();
  result->data.train_records = records;
  result->training = std::make_shared<plan>(g, options);
  result->rule = rule;
  result->rate.base = 0.1;
  return result;
}

/// Number of samples of a step; not the same in all steps.
std::uint64_t samples_of_step(std::uint64_t step) {
  return step % 4 == 3 ? 5 : 16;
}

std::vector<float> gradient_of_step(std::size_t n, std::uint64_t step) {
  const auto x = random_values(n, "gradient", step);
  return {x.begin(), x.end()};
}

/// The weights after 20 updates of the whole, undivided vector.
std::vector<float> uncut(const job_context& job) {
  const auto n = job.parameters().size();
  range_updater updater{job, {0, n}};
  std::vector<float> weights(n);
  job.initialize({0, n}, weights);
  for (std::uint64_t step = 0; step < 20; ++step)
    updater.apply(weights, gradient_of_step(n, step), samples_of_step(step), weights);
  return weights;
}

} // namespace

BOOST_AUTO_TEST_CASE(shards_give_the_bits_of_the_uncut_vector) {
  const auto job = context();
  const auto n = job->parameters().size();
  const auto expected = uncut(*job);
  for (const std::size_t count : {1, 2, 3, 7, 16}) {
    std::vector<float> result(n);
    for (std::size_t s = 0; s < count; ++s) {
      const auto where = job->shard(s, count);
      troupe::range_updater updater{*job, where};
      // The new weights are written to a second vector, as a shard does.
      std::vector<float> old(where.size());
      std::vector<float> updated(where.size());
      job->initialize(where, old);
      for (std::uint64_t step = 0; step < 20; ++step) {
        const auto gradient = gradient_of_step(n, step);
        updater.apply(old, std::span{gradient}.subspan(where.begin, where.size()),
                      samples_of_step(step), updated);
        std::swap(old, updated);
      }
      std::ranges::copy(old, result.begin() + static_cast<std::ptrdiff_t>(where.begin));
    }
    BOOST_TEST(same_bits(result, expected), count << " shards");
  }
}

// An update may leave out elements without gradient. It does not even read them.
BOOST_AUTO_TEST_CASE(updates_of_some_elements) {
  const optimizer rules[] = {
    {.kind = optimizer_kind::sgd},
    {.kind = optimizer_kind::adagrad},
    {.kind = optimizer_kind::momentum, .weight_decay = 0.01F, .lazy = true},
    {.kind = optimizer_kind::adam, .weight_decay = 0.01F, .l1 = 0.01, .lazy = true}};
  for (const auto& rule : rules) {
    const auto job = context_with_state(rule);
    const auto n = job->parameters().size();
    // The parts begin and end in tensors, and one contains the layer state.
    const range_list only{{1, 3}, {5, 10}, {14, 15}};
    troupe::range_updater all{*job, {0, n}};
    troupe::range_updater some{*job, {0, n}};
    std::vector<float> expected(n, 1);
    std::vector<float> found(n, 1);
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto gradient = gradient_of_step(n, step);
      auto partial = gradient;
      std::vector<float> updated = found;
      for (std::size_t i = 0; i < n; ++i)
        if (std::ranges::none_of(only, [i](auto& x) { return x.contains(i); })) {
          gradient[i] = 0;
          partial[i] = std::numeric_limits<float>::quiet_NaN();
        }
      all.apply(expected, gradient, 16, expected);
      some.apply(found, partial, 16, updated, troupe::range_updater::terms{.only = &only});
      found = updated;
    }
    BOOST_TEST(same_bits(found, expected));
    BOOST_TEST(some.updates() == 5u);
    for (std::size_t slot = 0; slot < job->rule.slots(); ++slot)
      BOOST_TEST(same_bits(some.state(slot), all.state(slot)));
  }
}

// The same with a moment for each worker, which the updater does not hold.
BOOST_AUTO_TEST_CASE(updates_of_some_elements_with_a_moment_apart) {
  const auto job = context_with_state({.kind = optimizer_kind::adam, .lazy = true});
  const auto n = job->parameters().size();
  const range_list only{{0, 2}, {6, 9}, {10, 13}};
  troupe::range_updater all{*job, {0, n}, true};
  troupe::range_updater some{*job, {0, n}, true};
  std::vector<float> expected(n, 1);
  std::vector<float> found(n, 1);
  std::vector<float> expected_moments[2]{std::vector<float>(n), std::vector<float>(n)};
  auto moments = std::to_array(expected_moments);
  for (std::uint64_t step = 0; step < 6; ++step) {
    auto gradient = gradient_of_step(n, step);
    for (std::size_t i = 0; i < n; ++i)
      if (std::ranges::none_of(only, [i](auto& x) { return x.contains(i); }))
        gradient[i] = 0;
    const auto worker = step % 2;
    troupe::range_updater::terms how{
      .moment = expected_moments[worker], .moment_step = step / 2 + 1, .look_ahead = true};
    all.apply(expected, gradient, 16, expected, how);
    how.moment = moments[worker];
    how.only = &only;
    some.apply(found, gradient, 16, found, how);
  }
  BOOST_TEST(same_bits(found, expected));
  for (std::size_t worker = 0; worker < 2; ++worker)
    BOOST_TEST(same_bits(moments[worker], expected_moments[worker]));
}

/// Like context(), but with optimizer groups (parameters with their own settings) and a frozen
/// tensor.
std::shared_ptr<const job_context> context_with_groups(const std::string& kind) {
  auto job = digits_job();
  apply_override(job, "model.freeze[0]=head.bias");
  apply_override(job, "optimizer={kind: " + kind + R"( weight_decay: 0.1 l1: 0.01
      group { match: "*.bias" weight_decay: 0 learning_rate_scale: 0.5 }
      group { match: "head.*" l1: 0 weight_decay: 0.3 } })");
  return make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, records});
}

// The update rule and learning rate of a tensor are those of its group, wherever the vector is cut
// into shards.
BOOST_AUTO_TEST_CASE(groups_have_rules_of_their_own) {
  for (const std::string kind :
       {"SGD", "NESTEROV", "ADAGRAD", "RMSPROP", "ADAM", "ADAMW", "LAMB"}) {
    const auto job = context_with_groups(kind);
    const auto n = job->parameters().size();
    std::vector<float> expected(n);
    job->initialize({0, n}, expected);
    const auto first = expected;
    for (const auto& tensor : job->parameters().entries()) {
      auto rule = job->rule;
      const bool bias = tensor.name == "dense_1.bias";
      if (bias)
        rule.weight_decay = 0;
      if (tensor.name == "head.weight") {
        rule.weight_decay = 0.3F;
        rule.l1 = 0;
      }
      const auto weights = std::span{expected}.subspan(tensor.offset, tensor.size);
      std::vector<float> state(rule.slots() * tensor.size);
      double samples = 0;
      for (std::uint64_t step = 0; step < 20 && tensor.name != "head.bias"; ++step) {
        const auto count = static_cast<double>(samples_of_step(step));
        samples += count;
        const auto gradient = gradient_of_step(n, step);
        update_arguments<float> arguments;
        arguments.weights = arguments.updated = weights;
        arguments.gradient = std::span{gradient}.subspan(tensor.offset, tensor.size);
        arguments.state = state;
        arguments.rate = job->rate.at((samples - count / 2) / records) * (bias ? 0.5 : 1);
        arguments.scale = 1 / count;
        arguments.step = step + 1;
        update(rule, arguments);
      }
    }
    for (const std::size_t count : {1, 2, 3, 7, 16}) {
      std::vector<float> result(n);
      for (std::size_t s = 0; s < count; ++s) {
        const auto where = job->shard(s, count);
        troupe::range_updater updater{*job, where};
        std::vector<float> old(where.size());
        std::vector<float> updated(where.size());
        job->initialize(where, old);
        for (std::uint64_t step = 0; step < 20; ++step) {
          const auto gradient = gradient_of_step(n, step);
          updater.apply(old, std::span{gradient}.subspan(where.begin, where.size()),
                        samples_of_step(step), updated);
          std::swap(old, updated);
        }
        std::ranges::copy(old, result.begin() + static_cast<std::ptrdiff_t>(where.begin));
      }
      BOOST_TEST(same_bits(result, expected), kind << ", " << count << " shards");
    }
    const auto frozen = job->parameters().find("head.bias")->elements();
    BOOST_TEST(std::equal(expected.begin() + static_cast<std::ptrdiff_t>(frozen.begin),
                          expected.begin() + static_cast<std::ptrdiff_t>(frozen.end),
                          first.begin() + static_cast<std::ptrdiff_t>(frozen.begin)));
  }
}

// Groups with the same settings as the job do not change the weights, bit for bit.
BOOST_AUTO_TEST_CASE(groups_like_all_others) {
  auto job = context()->job;
  const auto expected = uncut(*context());
  apply_override(job, "optimizer.group[0]={match: '*.weight' weight_decay: 0.01}");
  apply_override(job, "optimizer.group[1]={match: '*.bias' learning_rate_scale: 1}");
  const auto grouped = make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, records});
  BOOST_TEST(same_bits(uncut(*grouped), expected));
}

// Computes the same formulas in float64. Momentum and weight decay are as in PyTorch. The learning
// rate is the rate at the middle of the step: warm-up times cosine.
BOOST_AUTO_TEST_CASE(close_to_float64) {
  const auto job = context();
  const auto n = job->parameters().size();
  std::vector<float> first(n);
  job->initialize({0, n}, first);
  std::vector<double> w(first.begin(), first.end());
  std::vector<double> v(n);
  const double momentum = static_cast<double>(0.5F);
  const double decay = static_cast<double>(0.01F);
  double samples = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto count = static_cast<double>(samples_of_step(step));
    samples += count;
    const double epoch = (samples - count / 2) / records;
    const double rate = static_cast<double>(0.1F) * std::min(1.0, epoch / 0.5)
      * (1 + std::cos(3.14159265358979323846 * std::min(1.0, epoch / 3))) / 2;
    const auto gradient = gradient_of_step(n, step);
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = momentum * v[i] + static_cast<double>(gradient[i]) / count + decay * w[i];
      w[i] -= rate * v[i];
    }
  }
  // Tolerance: 20 steps with about four roundings each, of numbers that are about as large as the
  // weights.
  check_close(std::span<const float>{uncut(*job)}, w, 1e-5, 1e-6, "weights after 20 steps");
}

BOOST_AUTO_TEST_CASE(a_factor_scales_the_gradient) {
  const auto job = context();
  troupe::range_updater clipped{*job, {0, 100}};
  troupe::range_updater whole{*job, {0, 100}};
  const auto gradient = gradient_of_step(100, 0);
  std::vector<float> quarter(gradient);
  for (auto& x : quarter)
    x /= 4;
  std::vector<float> a(100, 1);
  std::vector<float> b(100, 1);
  clipped.apply(a, gradient, 16, a, 0.25);
  whole.apply(b, quarter, 16, b);
  BOOST_TEST(same_bits(a, b));
}

// Layer state becomes an average, weighted by samples. It does not depend on the optimizer, the
// learning rate, the factor, or how the vector is divided.
BOOST_AUTO_TEST_CASE(state_follows_its_statistics) {
  for (const auto kind : {optimizer_kind::adamw, optimizer_kind::lamb, optimizer_kind::sgd}) {
    const auto job = context_with_state({.kind = kind, .weight_decay = 0.01F});
    const auto n = job->parameters().size();
    BOOST_TEST_REQUIRE(n == 15U);
    std::vector<float> gradient(n, 1);
    // Worker 0 has 3 samples with statistic 2, worker 1 has 5 samples with statistic 10.
    for (std::size_t i = 6; i < 9; ++i)
      gradient[i] = 3 * 2 + 5 * 10;
    for (const std::size_t count : {1, 2, 4, 15}) {
      std::vector<float> weights(n, 1);
      for (std::size_t s = 0; s < count; ++s) {
        const auto where = job->shard(s, count);
        troupe::range_updater updater{*job, where};
        const auto cut = [&](auto& x) { return std::span{x}.subspan(where.begin, where.size()); };
        updater.apply(cut(weights), cut(gradient), 8, cut(weights), 0.125);
      }
      for (std::size_t i = 0; i < n; ++i)
        if (i >= 6 && i < 9)
          BOOST_TEST(weights[i] == 1 + 0.25F * (7 - 1));
        else
          BOOST_TEST(weights[i] != 1);
    }
  }
}

// LAMB makes a separate update for each tensor, in a shard as well as in the whole vector.
BOOST_AUTO_TEST_CASE(tensors_are_not_cut_where_the_optimizer_needs_them_whole) {
  const auto job = context_with_state({.kind = optimizer_kind::lamb, .weight_decay = 0.01F});
  const auto n = job->parameters().size();
  for (const std::size_t count : {1, 2, 3, 4, 7}) {
    std::size_t end = 0;
    for (std::size_t s = 0; s < count; ++s) {
      const auto where = job->shard(s, count);
      BOOST_TEST(where.begin == end);
      end = where.end;
      for (const auto& tensor : job->parameters().entries()) {
        const auto common = intersect(tensor.elements(), where).size();
        BOOST_TEST((common == 0 || common == tensor.size));
      }
    }
    BOOST_TEST(end == n);
  }
  troupe::range_updater whole{*job, {0, n}};
  std::vector<float> together(n, 1);
  std::vector<float> apart(n, 1);
  const auto gradient = gradient_of_step(n, 3);
  whole.apply(together, gradient, 4, together);
  for (const auto& tensor : job->parameters().entries()) {
    const auto cut = [&](auto& x) { return std::span{x}.subspan(tensor.offset, tensor.size); };
    troupe::range_updater own{*job, tensor.elements()};
    own.apply(cut(apart), cut(gradient), 4, cut(apart));
  }
  BOOST_TEST(same_bits(together, apart));
  // LAMB's trust ratio makes the step of a tensor as long as its weights, times the learning rate.
  // The weights are 6 ones, so their norm is sqrt(6).
  double length = 0;
  for (std::size_t i = 0; i < 6; ++i)
    length += std::pow(together[i] - 1.0, 2);
  const double rate = job->rate.at(2.0 / records);
  BOOST_TEST(std::abs(std::sqrt(length) - rate * std::sqrt(6.0)) < 1e-6);
}

// A cosine schedule ends at 0, and this job has only one step. The step uses the rate at its
// middle, half of the base rate, so it still trains.
BOOST_AUTO_TEST_CASE(a_single_step_trains) {
  auto job = digits_job();
  job.mutable_optimizer()->set_kind(proto::SGD);
  job.mutable_learning_rate()->set_base(0.5F);
  job.mutable_learning_rate()->mutable_cosine();
  job.set_epochs(1);
  const auto one = make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, records});
  troupe::range_updater updater{*one, {0, 2}};
  std::vector<float> w{1, 2};
  const std::vector<float> gradient(2, static_cast<float>(records));
  updater.apply(w, gradient, records, w);
  BOOST_TEST(w == (std::vector<float>{0.75F, 1.75F}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(samples_count) {
  const auto job = context();
  troupe::range_updater updater{*job, {0, 3}};
  BOOST_TEST(updater.samples() == 0u);
  std::vector<float> x{1, 2, 3};
  updater.apply(x, x, 7, x);
  updater.apply(x, x, 5, x);
  BOOST_TEST(updater.samples() == 12u);
  troupe::range_updater nothing{*job, {0, 0}};
  nothing.apply({}, {}, 7, {});
  BOOST_TEST(nothing.samples() == 7u);
}

namespace {

/// An updater on the CPU that accepts only one gradient, as devices do that cannot add two terms
/// themselves.
class plain_updater final : public device_updater {
public:
  explicit plain_updater(const updater_sizes& sizes) : cpu_(make_cpu_updater(sizes)) {}

  void apply(const range_update& x) override {
    BOOST_TEST(x.addend.empty());
    BOOST_TEST(x.finite == nullptr);
    cpu_->apply(x);
  }
  void stage(const range_update& x) override { cpu_->stage(x); }
  void publish() noexcept override { cpu_->publish(); }
  void reserve_stage() override { cpu_->reserve_stage(); }
  std::span<const float> state(std::size_t slot) override { return cpu_->state(slot); }
  void restore(std::size_t slot, std::span<const float> values) override {
    cpu_->restore(slot, values);
  }

private:
  std::unique_ptr<device_updater> cpu_;
};

} // namespace

// A gradient is passed as two terms, and is staged (kept back) or applied at once. One device adds
// the terms itself, the other does not. The result equals that of passing their sum as a single
// gradient, bit for bit.
BOOST_AUTO_TEST_CASE(a_gradient_in_two_terms) {
  const auto job = context();
  const auto n = job->parameters().size();
  const updater_maker plain = [](const updater_sizes& x) {
    return std::make_unique<plain_updater>(x);
  };
  for (const auto& on : {updater_maker{}, plain})
    for (const bool staged : {false, true}) {
      troupe::range_updater updater{*job, {0, n}, false, on};
      troupe::range_updater expected{*job, {0, n}};
      std::vector<float> old(n);
      job->initialize({0, n}, old);
      auto wanted = old;
      std::vector<float> updated(n);
      for (std::uint64_t step = 0; step < 5; ++step) {
        const auto a = gradient_of_step(n, step);
        auto b = gradient_of_step(n, 100 + step);
        const bool bad = step == 3;
        if (bad)
          b[n - 1 - step] = std::numeric_limits<float>::infinity();
        std::vector<float> sum(n);
        std::ranges::transform(a, b, sum.begin(), std::plus{});
        bool finite = true;
        const troupe::range_updater::terms how{.factor = 0.5, .addend = b, .finite = &finite};
        if (staged || bad)
          updater.stage(old, a, 20, updated, how);
        else
          updater.apply(old, a, 20, updated, how);
        BOOST_TEST(finite == !bad);
        if (bad) {
          updater.discard();
          continue;
        }
        updater.publish();
        std::swap(old, updated);
        expected.apply(wanted, sum, 20, wanted, 0.5);
        BOOST_TEST(same_bits(old, wanted));
        BOOST_TEST(same_bits(updater.state(0), expected.state(0)));
      }
    }
}

// Updates are staged (kept back) and then published. Some are discarded. The result equals that of
// updates that are applied at once, bit for bit.
BOOST_AUTO_TEST_CASE(staged_is_as_applied) {
  const auto job = context();
  const auto n = job->parameters().size();
  troupe::range_updater updater{*job, {0, n}};
  std::vector<float> old(n);
  std::vector<float> updated(n);
  job->initialize({0, n}, old);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const std::vector<float> before(updater.state(0).begin(), updater.state(0).end());
    const auto samples = updater.samples();
    if (step % 3 == 1) {
      updater.stage(old, gradient_of_step(n, 1000 + step), 99, updated, 0.5);
      updater.discard();
      updater.publish();
    }
    updater.stage(old, gradient_of_step(n, step), samples_of_step(step), updated);
    BOOST_TEST(same_bits(before, updater.state(0)));
    BOOST_TEST(updater.samples() == samples);
    updater.publish();
    std::swap(old, updated);
  }
  BOOST_TEST(same_bits(old, uncut(*job)));
}

BOOST_AUTO_TEST_CASE(shards_and_buckets_cover_the_parameters) {
  const auto job = context();
  const auto n = job->parameters().size();
  for (const std::size_t count : {1, 3, 8}) {
    std::size_t end = 0;
    for (std::size_t s = 0; s < count; ++s) {
      BOOST_TEST(job->shard(s, count).begin == end);
      end = job->shard(s, count).end;
    }
    BOOST_TEST(end == n);
  }
  auto buckets = job->buckets();
  std::ranges::sort(buckets, {}, &range::begin);
  std::size_t end = 0;
  for (const auto& x : buckets) {
    BOOST_TEST(x.begin == end);
    end = x.end;
  }
  BOOST_TEST(end == n);
}

BOOST_AUTO_TEST_CASE(initial_values_do_not_depend_on_the_cut) {
  const auto job = context();
  const auto n = job->parameters().size();
  std::vector<float> whole(n);
  job->initialize({0, n}, whole);
  BOOST_TEST(std::ranges::count(whole, 0.0F) < static_cast<std::ptrdiff_t>(n / 10));
  for (const std::size_t count : {2, 5}) {
    std::vector<float> parts(n);
    for (std::size_t s = 0; s < count; ++s) {
      const auto where = job->shard(s, count);
      job->initialize(where, std::span{parts}.subspan(where.begin, where.size()));
    }
    BOOST_TEST(same_bits(parts, whole));
  }
}

BOOST_AUTO_TEST_SUITE_END()
