#include "actors/protocols/local_sgd/outer_optimizer.hpp"

#include "actors/model/job_file.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(outer_optimizer)

namespace {

/// A job of LOCAL_SGD. Its parameters include the running statistics of batch_norm.
std::shared_ptr<const job_context> context(const std::string& outer) {
  auto job = digits_job();
  for (const auto* change : {"protocol=LOCAL_SGD",
                             "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { "
                             "dense { units: 10 } } "
                             "loss: SOFTMAX_CROSS_ENTROPY }"})
    apply_override(job, change);
  apply_override(job, "local_sgd.outer=" + outer);
  return make_job_context(job, {{.dims = {1, 4, 4}, .label_width = 10}, 100});
}

std::vector<float> mean_of(std::size_t n, std::uint64_t round) {
  const auto values = random_values(n, "means", round);
  return {values.begin(), values.end()};
}

} // namespace

// The test computes these formulas in float64. w are the outer weights, m is the mean of the
// replicas, d = w - m is the outer gradient, and v is the moment.
//   all rules:        v' = momentum * v + d, where momentum is 0 for SGD
//   SGD and MOMENTUM: w' = w - rate * v'
//   NESTEROV:         w' = w - rate * (d + momentum * v')
// Statistics of layers become m.
BOOST_AUTO_TEST_CASE(steps_from_the_last_weights_towards_the_mean) {
  struct rule {
    std::string text;
    double rate;
    double momentum;
    bool nesterov;
  };
  const rule rules[] = {{"{kind: SGD rate: 0.7}", 0.7, 0, false},
                        {"{kind: MOMENTUM rate: 0.5 momentum: 0.9}", 0.5, 0.9, false},
                        {"{}", 0.7, 0.5, true}};
  for (const auto& x : rules)
    BOOST_TEST_CONTEXT(x.text) {
      const auto job = context(x.text);
      const auto n = job->parameters().size();
      std::vector<float> initial(n);
      job->initialize({0, n}, initial);
      std::vector<double> weights(initial.begin(), initial.end());
      std::vector<double> moment(n);
      troupe::outer_optimizer subject{job};
      BOOST_TEST(subject.momentum().size() == (x.momentum > 0 ? n : 0));
      for (std::uint64_t round = 0; round < 5; ++round) {
        auto values = mean_of(n, round);
        for (const auto& tensor : job->parameters().entries())
          for (auto i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
            const double gradient = weights[i] - double{values[i]};
            moment[i] = x.momentum * moment[i] + gradient;
            const double step = x.nesterov ? gradient + x.momentum * moment[i] : moment[i];
            weights[i] = tensor.kind == parameter_kind::trainable ? weights[i] - x.rate * step
                                                                  : double{values[i]};
          }
        // Makes the step in pieces, which end inside tensors.
        for (const auto& part : split_evenly(n, 7))
          subject.step(part, std::span{values}.subspan(part.begin, part.size()));
        // Tolerance: each of five rounds computes in float32, with values below 10.
        check_close(std::span<const float>{values}, weights, 0, 1e-5, "outer weights");
      }
    }
}

BOOST_AUTO_TEST_CASE(goes_on_from_its_weights_and_momentum) {
  const auto job = context("{}");
  const auto n = job->parameters().size();
  troupe::outer_optimizer first{job};
  auto values = mean_of(n, 0);
  first.step({0, n}, values);
  troupe::outer_optimizer second{job};
  second.restore_weights(values);
  second.restore_momentum(first.momentum());
  auto a = mean_of(n, 1);
  auto b = a;
  first.step({0, n}, a);
  second.step({0, n}, b);
  BOOST_TEST(same_bits(std::span<const float>{a}, std::span<const float>{b}));
}

BOOST_AUTO_TEST_SUITE_END()
