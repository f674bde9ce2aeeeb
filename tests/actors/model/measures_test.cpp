#include "actors/model/measures.hpp"

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

BOOST_AUTO_TEST_SUITE(measures)

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t records = 40;

proto::Job wanting(std::initializer_list<proto::Measure> measures) {
  auto job = digits_job();
  for (const auto x : measures)
    job.mutable_evaluate()->add_measure(x);
  return job;
}

/// Adds the records to a measurer in groups of 1, 2, 3, ... records.
measured measure(const proto::Job& job, std::span<const std::int32_t> labels,
                 std::span<const float> outputs, double loss = 0) {
  measurer x{job};
  const auto units = outputs.size() / labels.size();
  for (std::size_t first = 0, size = 1; first < labels.size(); first += size++) {
    const auto n = std::min(size, labels.size() - first);
    x.add(labels.subspan(first, n), outputs.subspan(first * units, n * units));
  }
  return x.result(loss);
}

std::string error_with(const std::string& measure, std::vector<std::string> changes = {}) {
  auto job = digits_job();
  for (auto& x : changes)
    apply_override(job, x);
  apply_override(job, "evaluate.measure[0]=" + measure);
  return error_of([&] { make_job_context(job, shape_of(*build_data(job).train)); });
}

} // namespace

// The expected values are from scikit-learn 1.9.1 for the same records: top_k_accuracy_score (k=5),
// f1_score (average="macro"), confusion_matrix.
BOOST_AUTO_TEST_CASE(seven_classes_as_in_scikit_learn) {
  std::vector<std::int32_t> labels;
  std::vector<float> outputs;
  for (std::size_t i = 0; i < records; ++i) {
    labels.push_back(static_cast<std::int32_t>((i * i + 3 * i) % 7));
    for (std::size_t c = 0; c < 7; ++c)
      outputs.push_back(static_cast<float>((i * 31 + c * 17) % 23) / 8);
  }
  const auto job = wanting({proto::TOP_5, proto::F1, proto::CONFUSION, proto::PERPLEXITY});
  const auto x = measure(job, labels, outputs, 1.5);
  BOOST_TEST(x.top_5.value() == 0.7, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(x.f1.value() == 0.06938775510204082, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(x.perplexity.value() == 4.4816890703380645, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(!x.auc);
  BOOST_TEST(x.classes() == 7U);
  const std::vector<std::uint64_t> expected{2, 2, 3, 3, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                            0, 0, 0, 0, 1, 1, 1, 2, 1, 0, 0, 3, 4, 3, 1, 0, 0,
                                            1, 2, 3, 2, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
  BOOST_TEST(x.confusion == expected, boost::test_tools::per_element());
  BOOST_TEST(x.numbers().size() == 3U);
}

// The expected values are from roc_auc_score of scikit-learn 1.9.1. Many scores are equal.
BOOST_AUTO_TEST_CASE(two_classes_as_in_scikit_learn) {
  std::vector<std::int32_t> labels;
  std::vector<float> one;
  std::vector<float> two;
  for (std::size_t i = 0; i < records; ++i) {
    labels.push_back(i * i % 3 == 1 ? 1 : 0);
    one.push_back(static_cast<float>(i * 7 % 11) / 4 - 1);
    two.insert(two.end(), {1, 1 + one.back()});
  }
  const auto job = wanting({proto::AUC, proto::F1, proto::CONFUSION});
  const std::vector<std::uint64_t> expected{6, 8, 12, 14};
  for (const auto& outputs : {one, two}) {
    const auto x = measure(job, labels, outputs);
    BOOST_TEST(x.auc.value() == 0.46703296703296704, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(x.f1.value() == 0.4791666666666667, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(x.confusion == expected, boost::test_tools::per_element());
  }
  const std::vector<std::int32_t> same(records, 1);
  BOOST_TEST(!measure(job, same, one).auc);
}

BOOST_AUTO_TEST_CASE(ignored_labels_do_not_count) {
  auto job = wanting({proto::F1, proto::CONFUSION, proto::PERPLEXITY});
  job.mutable_model()->set_ignored_label(-1);
  const std::vector<std::int32_t> labels{0, -1, 1};
  const std::vector<float> outputs{1, 0, 1, 0, 0, 1};
  const std::vector<std::uint64_t> expected{1, 0, 0, 1};
  const auto x = measure(job, labels, outputs, std::log(5.0) * 2 / 3);
  BOOST_TEST(x.confusion == expected, boost::test_tools::per_element());
  BOOST_TEST(x.f1.value() == 1.0);
  BOOST_TEST(x.perplexity.value() == 5.0, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(measures_that_do_not_fit) {
  for (const auto* good : {"TOP_5", "F1", "PERPLEXITY", "CONFUSION"})
    BOOST_TEST(error_with(good) == "(no error)");
  BOOST_TEST(error_with("AUC")
             == "evaluate.measure[0]: AUC needs two classes, and the model has 10");
  BOOST_TEST(error_with("CONFUSION", {"model.layer[1].dense.units=101"})
             == "evaluate.measure[0]: CONFUSION needs at most 100 classes, and the model has 101");
}

// If the outputs are not finite, the loss ends the run. Other measures must not fail before that.
// They are only missing.
BOOST_AUTO_TEST_CASE(outputs_that_are_not_finite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> labels{0, 1, 1, 0};
  const auto job = wanting({proto::AUC, proto::F1, proto::CONFUSION});
  const auto x = measure(job, labels, std::vector<float>{1, 2, nan, 4, 5, 6, 7, nan});
  BOOST_TEST((!x.auc && !x.f1 && x.confusion.empty()));
}

BOOST_AUTO_TEST_CASE(labels_outside_the_classes) {
  const auto job = wanting({proto::F1, proto::CONFUSION, proto::TOP_5});
  const auto x =
    measure(job, std::vector<std::int32_t>{0, -1, 7}, std::vector<float>{2, 1, 1, 2, 1, 2});
  BOOST_TEST(x.confusion == (std::vector<std::uint64_t>{1, 0, 0, 0}));
}

BOOST_AUTO_TEST_SUITE_END()
