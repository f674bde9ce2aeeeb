#include "actors/model/job_context.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t records = 100;

/// Momentum, weight decay, warm-up and a cosine schedule: all that an update may depend on.
std::shared_ptr<const job_context> context() {
  auto job = digits_job();
  job.mutable_optimizer()->set_kind(proto::MOMENTUM);
  job.mutable_optimizer()->set_weight_decay(0.01F);
  job.mutable_learning_rate()->set_warmup_epochs(0.5F);
  job.mutable_learning_rate()->mutable_cosine();
  return make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, records});
}

/// Samples of a step; not all steps have as many.
std::uint64_t samples_of_step(std::uint64_t step) {
  return step % 4 == 3 ? 5 : 16;
}

std::vector<float> gradient_of_step(std::size_t n, std::uint64_t step) {
  const auto x = random_values(n, "gradient", step);
  return {x.begin(), x.end()};
}

/// 20 steps on the whole vector.
std::vector<float> uncut(const job_context& job) {
  const auto n = job.parameters().size();
  range_updater updater{job, n};
  std::vector<float> weights(n);
  job.initialize({0, n}, weights);
  for (std::uint64_t step = 0; step < 20; ++step)
    updater.apply(weights, gradient_of_step(n, step), samples_of_step(step), weights);
  return weights;
}

} // namespace

BOOST_AUTO_TEST_SUITE(range_updater)

BOOST_AUTO_TEST_CASE(shards_give_the_bits_of_the_uncut_vector) {
  const auto job = context();
  const auto n = job->parameters().size();
  const auto expected = uncut(*job);
  for (const std::size_t count : {1, 2, 3, 7, 16}) {
    std::vector<float> result(n);
    for (std::size_t s = 0; s < count; ++s) {
      const auto where = job->shard(s, count);
      troupe::range_updater updater{*job, where.size()};
      // Out of place, as shards do.
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

// The formula in float64: momentum and weight decay by PyTorch's definition; the rate after the
// step's samples, warm-up times cosine.
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
    const double epoch = samples / records;
    const double rate = static_cast<double>(0.1F) * std::min(1.0, epoch / 0.5)
      * (1 + std::cos(3.14159265358979323846 * std::min(1.0, epoch / 3))) / 2;
    const auto gradient = gradient_of_step(n, step);
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = momentum * v[i] + static_cast<double>(gradient[i]) / count + decay * w[i];
      w[i] -= rate * v[i];
    }
  }
  // 20 steps of about four roundings each, of numbers of the size of the weights.
  check_close(std::span<const float>{uncut(*job)}, w, 1e-5, 1e-6, "weights after 20 steps");
}

BOOST_AUTO_TEST_CASE(samples_count) {
  const auto job = context();
  troupe::range_updater updater{*job, 3};
  BOOST_TEST(updater.samples() == 0u);
  std::vector<float> x{1, 2, 3};
  updater.apply(x, x, 7, x);
  updater.apply(x, x, 5, x);
  BOOST_TEST(updater.samples() == 12u);
  troupe::range_updater nothing{*job, 0};
  nothing.apply({}, {}, 7, {});
  BOOST_TEST(nothing.samples() == 7u);
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
