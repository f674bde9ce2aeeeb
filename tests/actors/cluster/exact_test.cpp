// Tests of the exact solver, which computes the weights of linear models without gradient descent.

#include "actors/model/exact_solution.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/weight_decay_text.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(exact)

namespace {

/// A table with noise and three features. The features are not centered and have different scales.
class table {
public:
  explicit table(std::size_t rows = 300, bool dependent = false) {
    std::ofstream out{folder_ / "table.csv"};
    out.precision(9);
    out << "a,b,c,y\n";
    for (std::size_t i = 0; i < rows; ++i) {
      random_stream draw{7, {i}};
      const double a = 3 + draw.normal();
      const double b = draw.normal() / 2;
      const double c = dependent ? 2 * a + 1 : draw.normal() - 1;
      out << a << ',' << b << ',' << c << ',' << 2 * a - 3 * b + c / 2 + 5 + draw.normal() / 10
          << '\n';
    }
  }

  proto::Job job(const std::vector<std::string>& changes = {}) const {
    auto result = parse_job(R"(
      model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
      data { csv { features: "a" features: "b" features: "c" target: "y" } batch: 50 }
      optimizer { kind: SGD }
      learning_rate { base: 0.05 }
      output: "out")",
                            "job");
    result.mutable_data()->mutable_csv()->set_path((folder_ / "table.csv").string());
    for (auto& x : changes)
      apply_override(result, x);
    validate(result);
    return result;
  }

private:
  temporary_directory folder_;
};

/// The records of another data set in sparse form.
class sparse_view : public dataset {
public:
  explicit sparse_view(std::shared_ptr<const dataset> source)
    : source_(std::move(source)), record_(source_->record()) {
    record_.features = feature_kind::sparse;
  }

  std::uint64_t size() const noexcept override { return source_->size(); }
  const record_shape& record() const noexcept override { return record_; }
  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    std::vector<float> labels(records.size() * record_.label_elements());
    const auto all = dense(records, {{}, labels});
    return static_cast<std::uint64_t>(std::ranges::count_if(all, [](float x) { return x != 0; }));
  }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    const auto all = dense(records, labels);
    const auto width = record_.feature_width();
    auto entry = static_cast<std::size_t>(features.sparse.row_starts[0]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != 0) {
        features.sparse.columns[entry] = static_cast<std::int32_t>(i % width);
        features.sparse.values[entry++] = all[i];
      }
      features.sparse.row_starts[i / width + 1] = static_cast<std::int32_t>(entry);
    }
  }

private:
  std::vector<float> dense(std::span<const std::uint64_t> records, label_batch labels) const {
    std::vector<float> result(records.size() * record_.feature_width());
    source_->read(records, std::span{result}, labels);
    return result;
  }

  std::shared_ptr<const dataset> source_;
  record_shape record_;
};

std::vector<float> solve(const proto::Job& job, bool sparse = false) {
  auto data = build_data(job);
  if (sparse)
    data.train = std::make_shared<sparse_view>(data.train);
  const auto context = make_job_context(job, shape_of(*data.train));
  exact_solution solution{*context, *data.train};
  while (solution.read_some())
    continue;
  return solution.solve().weights;
}

void check_same(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_TEST(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i])), a[i] << " and " << b[i]);
}

} // namespace

// Gradient descent with all records in each batch converges to the weights of the exact solver.
BOOST_AUTO_TEST_CASE(gradient_descent_goes_there) {
  const table data;
  for (const auto* const change :
       {"name=plain", "optimizer.weight_decay=0.1",
        "optimizer={kind: SGD weight_decay: 0.1 group {match: '*.bias' weight_decay: 0}}",
        "optimizer.group[0]={match: '*.bias' weight_decay: 0.1}", "model.layer[0].dense.bias=false",
        "data.csv.standardize=true"}) {
    const auto job = data.job({"data.batch=300", "epochs=5000", change});
    serial_training descent{job};
    descent.train();
    check_same(solve(job), descent.weights(), 2e-5);
  }
}

// The expected values are from scikit-learn 1.9: Ridge(alpha=alpha, solver="cholesky").fit(X, y) in
// float64.
// alpha is decay * 8 / 2, because the table has 8 records. troupe minimizes the mean squared error
// plus decay / 2 times the sum of the squared weights. Ridge minimizes the sum of the squared
// errors plus alpha times the sum of the squared weights.
// Ridge does not penalize the intercept.
BOOST_AUTO_TEST_CASE(ridge_of_scikit_learn) {
  const temporary_directory folder;
  std::ofstream{folder / "table.csv"} << "a,b,c,y\n"
                                         "3.5,-1.25,0.5,12.5\n"
                                         "2,0.75,-2.5,7.25\n"
                                         "4.25,0.5,1,11\n"
                                         "1.5,-0.25,3.25,9.5\n"
                                         "5,2,-1.5,8.75\n"
                                         "2.75,-2,0.25,15\n"
                                         "3,1.5,2,6.5\n"
                                         "0.5,-0.75,-3,8\n";
  const std::vector<std::pair<std::string, std::vector<float>>> references{
    {"0.25", {1.145299327824022F, -1.9404135946619936F, 0.10132892219050336F, 6.712621490161313F}},
    {"1", {0.8122841196678328F, -1.4822226006882595F, 0.13796324576460386F, 7.620589825977237F}}};
  for (const auto& [decay, expected] : references) {
    auto job = parse_job(R"(
      model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
      data { csv { features: "a" features: "b" features: "c" target: "y" } batch: 8 }
      optimizer { group { match: "*.bias" weight_decay: 0 } }
      solver: EXACT)",
                         "job");
    job.mutable_data()->mutable_csv()->set_path((folder / "table.csv").string());
    apply_override(job, "optimizer.weight_decay=" + decay);
    validate(job);
    check_same(solve(job), expected, 1e-6);
    const auto context = make_job_context(job, shape_of(*build_data(job).train));
    BOOST_TEST(weight_decay_text(*context).find("intercept") == std::string::npos);
    job.mutable_optimizer()->clear_group();
    const auto without = make_job_context(job, shape_of(*build_data(job).train));
    BOOST_TEST(weight_decay_text(*without).find("group { match: \"dense_1.bias\" weight_decay: 0 }")
               != std::string::npos);
    BOOST_TEST(std::abs(solve(job)[3] - expected[3]) > 0.1);
    // Standardization leaves columns of categories (0 or 1) as they are, so their mean is not 0.
    job.mutable_data()->mutable_csv()->set_standardize(true);
    for (bool categories : {false, true}) {
      if (categories)
        job.mutable_data()->mutable_csv()->add_categories("c");
      const auto scaled = make_job_context(job, shape_of(*build_data(job).train));
      BOOST_TEST((weight_decay_text(*scaled).find("intercept") != std::string::npos) == categories);
    }
  }
}

// weight_decay_text() compares a job with scikit-learn's Ridge. The text is empty if Ridge cannot
// do what the job does, for example if the job has an L1 penalty. The text mentions the intercept
// only if the bias is trained.
BOOST_AUTO_TEST_CASE(comparisons_that_do_not_hold) {
  const table data;
  const auto text = [&](const std::vector<std::string>& changes) {
    auto all = changes;
    all.emplace_back("optimizer.weight_decay=0.1");
    const auto job = data.job(all);
    return weight_decay_text(*make_job_context(job, shape_of(*build_data(job).train)));
  };
  BOOST_TEST(text({}).find("intercept") != std::string::npos);
  const auto frozen = text({"model.freeze[0]=*.bias"});
  BOOST_TEST(frozen.find("Ridge") != std::string::npos);
  BOOST_TEST(frozen.find("intercept") == std::string::npos);
  BOOST_TEST(text({"model.freeze[0]=*.weight"}) == "");
  BOOST_TEST(text({"optimizer.l1=0.1"}) == "");
}

BOOST_AUTO_TEST_CASE(sparse_records_are_records) {
  const table data;
  BOOST_TEST(solve(data.job(), true) == solve(data.job()), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_run_of_any_kind) {
  const table data;
  const auto expected = solve(data.job());
  for (const auto protocol : all_protocols) {
    const auto job = data.job({"solver=EXACT", "protocol=" + proto::Protocol_Name(protocol)});
    for (const auto how : all_ways) {
      const auto result = train(how, job, 2, 2);
      BOOST_TEST(result.failure == "");
      BOOST_TEST(result.samples == 300U);
      BOOST_TEST(result.coefficients.size() == 4U);
      BOOST_TEST(result.train_loss < 0.012);
      BOOST_TEST(result.test_loss == result.train_loss, boost::test_tools::tolerance(1e-4));
    }
    simulation run{simulated(job, 2, 2)};
    BOOST_TEST(run.run().summary.protocol == "exact");
    const auto context = make_job_context(job, shape_of(*build_data(job).train));
    const auto file = run.files().contents("out/weights.safetensors");
    BOOST_TEST(read_model(as_byte_span(file), context->parameters(), "weights").weights == expected,
               boost::test_tools::per_element());
    BOOST_TEST(run.files().contents("out/report.html").find("exact") != std::string::npos);
    BOOST_TEST(run.files().contents("out/metrics.jsonl").find("\"event\":\"epoch\"")
               != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(weights_that_are_not_unique) {
  const table dependent{300, true};
  auto text = simulate(simulated(dependent.job({"solver=EXACT"}), 1, 1)).summary.failure;
  BOOST_TEST(text.find("\"c\" is constant, or a linear combination of earlier features")
               != std::string::npos,
             text);
  BOOST_TEST(text.find("optimizer.weight_decay") != std::string::npos, text);
  const auto ridge = dependent.job({"solver=EXACT", "optimizer.weight_decay=0.01"});
  BOOST_TEST(simulate(simulated(ridge, 1, 1)).summary.failure == "");

  const table few{2};
  text = simulate(simulated(few.job({"solver=EXACT", "data.batch=2"}), 1, 1)).summary.failure;
  BOOST_TEST(text.find("fewer training records (2)") != std::string::npos, text);
  BOOST_TEST(text.find("\"b\", \"c\"") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(advertising) {
  if (!has_data("advertising.csv"))
    return;
  const auto job = example_job("advertising", {"solver=EXACT"});
  const auto result = train(way::here, job, 1, 1);
  BOOST_TEST(result.failure == "");
  // The coefficients are from James, Witten, Hastie, Tibshirani, "An Introduction to Statistical
  // Learning".
  const std::vector<double> expected{2.938889, 0.045765, 0.188530, -0.001037};
  BOOST_TEST_REQUIRE(result.coefficients.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    BOOST_TEST(std::abs(result.coefficients[i] - expected[i]) < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
