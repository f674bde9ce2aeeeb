#include "kernels/data/sparse.hpp"

#include "kernels/data/subset.hpp"
#include "tests/support/input_errors.hpp"

#include <memory>
#include <numeric>
#include <utility>

BOOST_AUTO_TEST_SUITE(sparse)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Reads the features and labels of some records.
struct read_rows {
  std::vector<std::int32_t> starts;
  std::vector<std::int32_t> columns;
  std::vector<float> values;
  std::vector<std::int32_t> classes;

  read_rows(const dataset& x, std::vector<std::uint64_t> records)
    : starts(records.size() + 1), columns(x.entries(records)), values(columns.size()),
      classes(records.size()) {
    x.read(records, sparse_batch{starts, columns, values}, {classes, {}});
  }
};

std::shared_ptr<const sparse_dataset> three_rows() {
  auto rows = parse_libsvm(bytes_of("1 2:0.5 4:2\n0\n1 1:-1\n"), "x");
  auto labels = stored_labels::as_classes(rows.labels, class_numbers::from_zero, 0, "x");
  return std::make_shared<const sparse_dataset>(std::move(rows), 5, std::move(labels), "x");
}

} // namespace

BOOST_AUTO_TEST_CASE(rows_in_any_order) {
  const auto x = three_rows();
  BOOST_TEST(x->size() == 3u);
  BOOST_TEST((x->record().features == feature_kind::sparse));
  BOOST_TEST((x->record().dims == shape{5}));
  BOOST_TEST(x->record().label_width == 2u);
  const read_rows all{*x, {2, 1, 0, 2}};
  BOOST_TEST(all.starts == (std::vector<std::int32_t>{0, 1, 1, 3, 4}));
  BOOST_TEST(all.columns == (std::vector<std::int32_t>{0, 1, 3, 0}));
  BOOST_TEST(all.values == (std::vector<float>{-1, 0.5F, 2, -1}));
  BOOST_TEST(all.classes == (std::vector<std::int32_t>{1, 0, 1, 1}));
}

// A large subset is read in pieces. Each piece must continue at the end of the previous one.
BOOST_AUTO_TEST_CASE(subset_of_many) {
  std::string text;
  for (int i = 0; i < 700; ++i) {
    text += "1";
    for (int j = 1; j <= i % 4; ++j)
      text += " " + std::to_string(j) + ":" + std::to_string(i);
    text += "\n";
  }
  auto rows = parse_libsvm(bytes_of(text), "x");
  auto labels = stored_labels::as_classes(rows.labels, class_numbers::from_zero, 0, "x");
  const auto whole =
    std::make_shared<const sparse_dataset>(std::move(rows), 3, std::move(labels), "x");
  const auto part = troupe::subset(whole, 50, 600);
  std::vector<std::uint64_t> records(600);
  std::iota(records.rbegin(), records.rend(), 0U);
  const read_rows found{*part, records};
  for (std::size_t i = 0; i < 600; ++i) {
    const auto row = 50 + static_cast<std::int32_t>(records[i]);
    BOOST_REQUIRE(found.starts[i + 1] - found.starts[i] == row % 4);
    for (auto e = found.starts[i]; e < found.starts[i + 1]; ++e) {
      BOOST_REQUIRE(found.columns[static_cast<std::size_t>(e)] == e - found.starts[i]);
      BOOST_REQUIRE(found.values[static_cast<std::size_t>(e)] == static_cast<float>(row));
    }
  }
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto make = [](std::string_view text, std::size_t features, std::size_t labels) {
    return error_of([&] {
      sparse_dataset{parse_libsvm(bytes_of(text), "x"), features,
                     stored_labels::as_targets(std::vector<double>(labels), 1, "x"), "x"};
    });
  };
  BOOST_TEST(contains(make("1 4:1\n", 3, 1), "x: index 4 is beyond the 3 features"));
  BOOST_TEST(contains(make("1\n", 0, 1), "no features"));
  BOOST_TEST(contains(make("1 1:1\n", 3, 2), "1 rows, but 2 labels"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(labels)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(numberings) {
  const auto numbering = [](std::vector<double> x) { return numbering_of(x); };
  BOOST_TEST((numbering({0, 1, 1}) == class_numbers::from_zero));
  BOOST_TEST((numbering({0, 3}) == class_numbers::from_zero));
  BOOST_TEST((numbering({1, 1}) == class_numbers::from_zero));
  BOOST_TEST((numbering({1, 3}) == class_numbers::from_one));
  BOOST_TEST((numbering({1, -1}) == class_numbers::signs));
}

BOOST_AUTO_TEST_CASE(classes) {
  const auto read = [](std::vector<double> values, class_numbers numbering, std::size_t classes) {
    const auto all = stored_labels::as_classes(values, numbering, classes, "x");
    std::vector<std::uint64_t> records(all.size());
    std::iota(records.begin(), records.end(), 0U);
    std::vector<std::int32_t> result(all.size());
    all.read(records, {result, {}});
    result.push_back(static_cast<std::int32_t>(all.width()));
    return result;
  };
  BOOST_TEST(read({0, 2, 1}, class_numbers::from_zero, 0)
             == (std::vector<std::int32_t>{0, 2, 1, 3}));
  BOOST_TEST(read({0, 0}, class_numbers::from_zero, 0) == (std::vector<std::int32_t>{0, 0, 2}));
  BOOST_TEST(read({3, 1}, class_numbers::from_one, 5) == (std::vector<std::int32_t>{2, 0, 5}));
  BOOST_TEST(read({-1, 1}, class_numbers::signs, 0) == (std::vector<std::int32_t>{0, 1, 2}));
  const auto error = [&](std::vector<double> values, class_numbers numbering, std::size_t classes) {
    return error_of([&] { read(values, numbering, classes); });
  };
  BOOST_TEST(contains(error({0, 1.5}, class_numbers::from_zero, 0),
                      "x: record 1 has label 1.5; expected a whole number from 0 to 2147483646"));
  BOOST_TEST(contains(error({2147483648.0}, class_numbers::from_zero, 0),
                      "has label 2147483648; expected a whole number from 0 to 2147483646"));
  BOOST_TEST(contains(error({0}, class_numbers::from_one, 0), "expected a whole number from 1"));
  BOOST_TEST(contains(error({0}, class_numbers::signs, 0), "expected -1 or 1"));
  BOOST_TEST(contains(error({0, 2}, class_numbers::from_zero, 2),
                      "record 1 has label 2; expected 0 to 1: the model has 2 classes"));
  const std::string start = "2 classes; no record has label 0: do the labels start at 1?";
  BOOST_TEST(contains(error({1, 2, 1}, class_numbers::from_zero, 2), start));
  BOOST_TEST(!contains(error({0, 2, 1}, class_numbers::from_zero, 2), "start at 1"));
  BOOST_TEST(!contains(error({1, 3, 1}, class_numbers::from_zero, 2), "start at 1"));
  BOOST_TEST(contains(error({1, 4}, class_numbers::from_one, 3), "expected 1 to 3"));
  BOOST_TEST(contains(error({1e300}, class_numbers::from_zero, 0), "expected a whole number"));
}

BOOST_AUTO_TEST_CASE(targets) {
  const std::vector<double> values{1, 2, 3, 4};
  const auto x = stored_labels::as_targets(values, 2, "x");
  BOOST_TEST(x.size() == 2u);
  std::vector<float> out(2);
  x.read(std::vector<std::uint64_t>{1}, {{}, out});
  BOOST_TEST(out == (std::vector<float>{3, 4}));
  const std::vector<double> large{0, 0, 1e39};
  BOOST_TEST(contains(error_of([&] { stored_labels::as_targets(large, 2, "x"); }),
                      "record 1 has target 1e+39"));
}

BOOST_AUTO_TEST_SUITE_END()
