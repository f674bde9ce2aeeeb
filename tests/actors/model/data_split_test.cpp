// How records are divided for training, validation and test.

#include "actors/model/data_split.hpp"

#include "actors/model/dataset_labels.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

BOOST_AUTO_TEST_SUITE(data_split)

using namespace troupe;
using namespace troupe::test;

namespace {

using numbers = std::vector<std::uint64_t>;

proto::Split with_seed(std::uint64_t seed) {
  proto::Split result;
  result.set_seed(seed);
  return result;
}

numbers all_of(const split_lists& x) {
  numbers result = x.train;
  result.insert(result.end(), x.validation.begin(), x.validation.end());
  result.insert(result.end(), x.test.begin(), x.test.end());
  std::ranges::sort(result);
  return result;
}

numbers up_to(std::uint64_t n) {
  numbers result(n);
  std::iota(result.begin(), result.end(), std::uint64_t{0});
  return result;
}

/// Number of records in each of three classes.
std::array<std::size_t, 3> counts(const numbers& records,
                                  const std::vector<std::int32_t>& classes) {
  std::array<std::size_t, 3> result{};
  for (const auto record : records)
    ++result.at(static_cast<std::size_t>(classes[record]));
  return result;
}

/// A table of records that are sorted by class: 40 a, 40 b, 20 c.
struct sorted_table {
  temporary_directory folder;
  proto::Job job;

  sorted_table() {
    std::string text = "x,class\n";
    for (int i = 0; i < 100; ++i)
      text += std::to_string(i) + (i < 40 ? ",a\n" : i < 80 ? ",b\n" : ",c\n");
    write_file(folder / "x.csv", as_byte_span(text));
    job = parse_job("model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY } data { csv "
                    "{ path: \""
                      + (folder / "x.csv").string()
                      + "\" features: \"x\" label: \"class\" } split { test: 20 } }",
                    "job");
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(drawn_by_lot) {
  const auto x = draw_split(with_seed(1), {60, 15, 25}, 100);
  BOOST_TEST(x.train.size() == 60u);
  BOOST_TEST(x.validation.size() == 15u);
  BOOST_TEST(x.test.size() == 25u);
  BOOST_TEST(all_of(x) == up_to(100), boost::test_tools::per_element());
  for (const auto* list : {&x.train, &x.validation, &x.test})
    BOOST_TEST(std::ranges::is_sorted(*list));
  // The test records are drawn from the whole file. Without shuffling, they would be its last
  // quarter.
  BOOST_TEST(x.test.front() < 25u);
  BOOST_TEST((draw_split(with_seed(1), {60, 15, 25}, 100).test == x.test));
  BOOST_TEST((draw_split(with_seed(2), {60, 15, 25}, 100).test != x.test));
  // Some records may be unused.
  BOOST_TEST(all_of(draw_split(with_seed(1), {5, 0, 2}, 100)).size() == 7u);
}

BOOST_AUTO_TEST_CASE(every_node_draws_the_same) {
  BOOST_TEST(draw_split(with_seed(1), {7, 0, 3}, 10).test == (numbers{1, 4, 7}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(same_shares_of_classes) {
  std::vector<std::int32_t> classes(100, 0);
  std::fill(classes.begin() + 50, classes.begin() + 80, 1);
  std::fill(classes.begin() + 80, classes.end(), 2);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto x = draw_stratified(with_seed(seed), {60, 20, 20}, classes);
    BOOST_TEST(all_of(x) == up_to(100), boost::test_tools::per_element());
    BOOST_TEST(counts(x.test, classes) == (std::array<std::size_t, 3>{10, 6, 4}),
               boost::test_tools::per_element());
    BOOST_TEST(counts(x.validation, classes) == (std::array<std::size_t, 3>{10, 6, 4}),
               boost::test_tools::per_element());
  }
  BOOST_TEST((draw_stratified(with_seed(1), {80, 0, 20}, classes).test
              != draw_stratified(with_seed(2), {80, 0, 20}, classes).test));
  // In a stratified split, each class has at least one record in training, even if it has only one
  // or two records. This is tested with the first and the last class, among others.
  std::vector<std::int32_t> rare(20, 1);
  rare[3] = 0;
  rare[7] = rare[11] = 2;
  rare[19] = 3;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto x = draw_stratified(with_seed(seed), {12, 4, 4}, rare);
    BOOST_TEST((x.train.size() == 12 && x.validation.size() == 4 && x.test.size() == 4));
    std::set<std::int32_t> seen;
    for (const auto record : x.train)
      seen.insert(rare[record]);
    BOOST_TEST(seen.size() == 4u);
  }
  // There are too few training records here for one record of each class.
  std::vector<std::int32_t> each(10);
  std::iota(each.begin(), each.end(), 0);
  BOOST_TEST(draw_stratified(with_seed(1), {6, 0, 4}, each).test.size() == 4u);
  const auto few = draw_stratified(with_seed(1), {30, 0, 10}, classes);
  BOOST_TEST(few.train.size() == 30u);
  BOOST_TEST(counts(few.train, classes) == (std::array<std::size_t, 3>{15, 9, 6}),
             boost::test_tools::per_element());
}

// In a file that is sorted by class, the last records all have the same class. Without shuffling, a
// test on them once gave an accuracy of 100 %.
BOOST_FIXTURE_TEST_CASE(files_sorted_by_class, sorted_table) {
  const auto data = build_data(job);
  for (const auto n : count_classes(*data.test))
    BOOST_TEST(n > 0u);
  // The job's seed does not affect the test records.
  auto other = job;
  other.set_seed(7);
  BOOST_TEST(read_labels(*build_data(other).test).classes == read_labels(*data.test).classes);
  apply_override(job, "data.split.stratify=true");
  BOOST_TEST(count_classes(*build_data(job).test) == (numbers{8, 8, 4}));
  apply_override(job, "data.split={ test: 20 shuffle: false }");
  const auto ordered = build_data(job);
  BOOST_TEST(count_classes(*ordered.test) == (numbers{0, 0, 20}));
  BOOST_TEST(ordered.test->origin(0) == 80u);
}

BOOST_FIXTURE_TEST_CASE(what_cannot_be_drawn, sorted_table) {
  const auto error = [&](const std::string& change) {
    auto x = job;
    apply_override(x, change);
    return error_of([&] {
      validate(x);
      build_data(x);
    });
  };
  BOOST_TEST(contains(error("data.split={ test: 20 shuffle: false stratify: true }"),
                      "data.split.stratify"));
  BOOST_TEST(contains(error("data.csv={ path: \"" + (folder / "x.csv").string()
                            + "\" features: \"class\" categories: \"class\" target: \"x\" }"),
                      "model.loss"));
  const auto text = parse_job("model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY } "
                              "data { text { path: \"x\" } split { test: 0.1 shuffle: true } }",
                              "job");
  BOOST_TEST(contains(error_of([&] { validate(text); }),
                      "data.split.shuffle: a text is split in "
                      "order"));
  auto targets = job;
  apply_override(targets, "model.loss=MEAN_SQUARED_ERROR");
  apply_override(targets, "model.layer[0].dense.units=1");
  targets.mutable_data()->mutable_csv()->clear_label();
  targets.mutable_data()->mutable_csv()->set_target("x");
  targets.mutable_data()->mutable_csv()->set_features(0, "class");
  targets.mutable_data()->mutable_csv()->add_categories("class");
  targets.mutable_data()->mutable_split()->set_stratify(true);
  BOOST_TEST(contains(error_of([&] { build_data(targets); }),
                      "data.split.stratify: the records "
                      "have a target"));
}

BOOST_AUTO_TEST_SUITE_END()
