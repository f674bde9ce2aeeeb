#include "actors/model/model_tester.hpp"

#include "actors/model/data_builder.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(model_tester)

using namespace troupe;
using namespace troupe::test;

namespace {

struct tested_job {
  explicit tested_job(const proto::Job& job)
    : data(build_data(job)), context(make_job_context(job, shape_of(*data.train))),
      weights(context->parameters().size()) {
    context->initialize({0, weights.size()}, weights);
  }

  job_data data;
  std::shared_ptr<const job_context> context;
  std::vector<float> weights;
};

} // namespace

BOOST_AUTO_TEST_CASE(outputs_are_what_loss_and_accuracy_come_from) {
  auto job = digits_job();
  job.mutable_data()->mutable_digits()->set_test(
    600); // more records than the tester computes at once
  const tested_job x{job};
  double loss = 0;
  std::size_t correct = 0;
  std::uint64_t next = 0;
  const auto collect = [&](const tested_records& r) {
    BOOST_TEST(r.first == next);
    BOOST_REQUIRE(r.outputs.size() == r.count * 10);
    BOOST_REQUIRE(r.classes.size() == r.count);
    BOOST_TEST(r.features.size() == r.count * 784);
    BOOST_TEST(r.targets.empty());
    next += r.count;
    for (std::size_t i = 0; i < r.count; ++i) {
      const auto logits = r.outputs.subspan(i * 10, 10);
      const auto label = static_cast<std::size_t>(r.classes[i]);
      double total = 0;
      for (auto y : logits)
        total += std::exp(static_cast<double>(y));
      loss += std::log(total) - static_cast<double>(logits[label]);
      const auto best = std::ranges::max_element(logits) - logits.begin();
      correct += static_cast<std::size_t>(best) == label ? 1 : 0;
    }
  };
  troupe::model_tester tester{*x.context};
  const auto result = tester.run(x.weights, *x.data.test, collect);
  BOOST_TEST(next == 600u);
  BOOST_TEST(result.loss == loss / 600, boost::test_tools::tolerance(1e-5));
  BOOST_REQUIRE(result.accuracy.has_value());
  BOOST_TEST(*result.accuracy == static_cast<double>(correct) / 600);
  // A second run, without a listener, gives the same bits.
  BOOST_TEST(tester.run(x.weights, *x.data.test).loss == result.loss);
  BOOST_TEST(tester.rows() == 256u);
  BOOST_TEST(troupe::model_tester::memory_bytes(*x.context) > 256u * 784 * sizeof(float));
}

BOOST_AUTO_TEST_CASE(large_models_are_tested_in_groups_that_take_no_more_memory_than_a_step) {
  auto job = digits_job();
  job.mutable_data()->mutable_digits()->set_test(70);
  const auto tester_of = [&job](std::uint32_t units, std::uint32_t batch) {
    job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(units);
    job.mutable_data()->set_batch(batch);
    return tested_job{job};
  };
  // The tester computes as many records (rows) at once as fit into 64 MiB, but at least as many as
  // a training step has. 256 rows of 200,000 units would take 205 MB. A step of 4 samples takes
  // less than 64 MiB, a step of 100 samples more.
  const auto small = tester_of(200'000, 4);
  troupe::model_tester tester{*small.context};
  BOOST_TEST(tester.rows() == 64u);
  BOOST_TEST(troupe::model_tester::memory_bytes(*small.context) < std::size_t{80} << 20);
  const auto large = tester_of(200'000, 100);
  BOOST_TEST(troupe::model_tester{*large.context}.rows() == 128u);
  // The test records are computed in groups, of which the last one is smaller. The size of the
  // groups does not change the result.
  const auto result = tester.run(small.weights, *small.data.test);
  const auto other = troupe::model_tester{*large.context}.run(small.weights, *small.data.test);
  BOOST_TEST(result.loss == other.loss, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(*result.accuracy == *other.accuracy);
}

BOOST_AUTO_TEST_CASE(a_model_beyond_memory_is_measured) {
  auto job = digits_job();
  job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(16'777'216);
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  // At least one row of the hidden layer is always computed, even if it needs more than 64 MiB.
  BOOST_TEST(troupe::model_tester::memory_bytes(*context) >= 16'777'216U * sizeof(float));
}

BOOST_AUTO_TEST_CASE(targets) {
  const temporary_directory folder;
  const auto path = folder / "data.csv";
  std::ofstream{path} << "a,b,y\n1,2,3\n2,0,1\n0,1,5\n";
  const tested_job x{csv_job(path.string())};
  double loss = 0;
  const auto collect = [&](const tested_records& r) {
    BOOST_TEST(r.classes.empty());
    for (std::size_t i = 0; i < r.count; ++i)
      loss += std::pow(static_cast<double>(r.outputs[i]) - static_cast<double>(r.targets[i]), 2);
  };
  const auto result = troupe::model_tester{*x.context}.run(x.weights, *x.data.test, collect);
  BOOST_TEST(result.loss == loss / 3, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(!result.accuracy.has_value());
}

// With targets that are 0 or 1, the accuracy counts each element of a target.
BOOST_AUTO_TEST_CASE(accuracy_of_several_labels_at_once) {
  const temporary_directory folder;
  const auto path = folder / "data.csv";
  const auto job_with = [&](const char* rows) {
    std::ofstream{path} << "a,b,y\n" << rows;
    auto job = csv_job(path.string());
    job.mutable_model()->set_loss(proto::BINARY_CROSS_ENTROPY);
    job.mutable_data()->mutable_csv()->set_standardize(false);
    return job;
  };
  const tested_job x{job_with("1,2,0\n2,0,1\n0,1,1\n5,1,0\n")};
  std::size_t correct = 0;
  const auto collect = [&](const tested_records& r) {
    for (std::size_t i = 0; i < r.targets.size(); ++i)
      correct += (r.outputs[i] > 0) == (r.targets[i] == 1) ? 1 : 0;
  };
  const auto result = troupe::model_tester{*x.context}.run(x.weights, *x.data.test, collect);
  BOOST_REQUIRE(result.accuracy.has_value());
  BOOST_TEST(*result.accuracy == static_cast<double>(correct) / 4);
  const tested_job soft{job_with("1,2,0\n2,0,1\n0,1,0.5\n5,1,0\n")};
  BOOST_TEST(
    !troupe::model_tester{*soft.context}.run(soft.weights, *soft.data.test).accuracy.has_value(),
    "probabilities as targets");
}

BOOST_AUTO_TEST_CASE(weights_of_another_size_are_a_mistake_of_the_program) {
  const tested_job x{digits_job()};
  troupe::model_tester tester{*x.context};
  BOOST_CHECK_THROW(tester.run(std::span{x.weights}.first(3), *x.data.test), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
