// CSV tables: classes, categories, missing values, scaling.

#include "actors/model/data_builder.hpp"
#include "actors/model/dataset_labels.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

BOOST_AUTO_TEST_SUITE(data_csv)

using namespace troupe;
using namespace troupe::test;

namespace {

using floats = std::vector<float>;
using classes = std::vector<std::int32_t>;
using names = std::vector<std::string>;

struct table_file {
  temporary_directory folder;

  void write(std::string_view text) const { write_file(folder / "x.csv", as_byte_span(text)); }

  /// A job with one dense layer that reads the table.
  proto::Job job(const std::string& loss, int units, const std::string& csv,
                 const std::string& more = "batch: 1") const {
    return parse_job("model { layer { dense { units: " + std::to_string(units)
                       + " } } loss: " + loss + " } data { csv { path: \""
                       + (folder / "x.csv").string() + "\" " + csv + " } " + more + " }",
                     "job");
  }

  std::string error(const proto::Job& x) const {
    return error_of([&] {
      validate(x);
      build_data(x);
    });
  }
};

floats features_of(const dataset& x, std::uint64_t record) {
  const std::vector<std::uint64_t> records{record};
  floats features(x.record().feature_width());
  classes labels(x.record().label_elements());
  floats targets(x.record().label_elements());
  if (x.record().features == feature_kind::sparse) {
    const auto n = x.entries(records);
    classes starts(2);
    classes columns(n);
    floats values(n);
    x.read(records, sparse_batch{starts, columns, values}, {labels, targets});
    for (std::size_t i = 0; i < n; ++i)
      features[static_cast<std::size_t>(columns[i])] = values[i];
    return features;
  }
  x.read(records, std::span{features}, {labels, targets});
  return features;
}

const std::string xy = "features: \"x\" target: \"y\" ";
const std::string species = "features: \"x\" label: \"species\" ";

} // namespace

// Targets of a binary loss must stay 0 and 1. They were once standardized by mistake, and the loss
// fell to -368.
BOOST_FIXTURE_TEST_CASE(targets_of_binary_losses_are_not_scaled, table_file) {
  write("x,y\n1,0\n2,1\n3,1\n6,1\n");
  const auto data = build_data(job("BINARY_CROSS_ENTROPY", 1, xy + "standardize: true"));
  BOOST_TEST(read_labels(*data.train).targets == (floats{0, 1, 1, 1}));
  BOOST_TEST(features_of(*data.train, 2)[0] == 0.0F);
  BOOST_TEST(data.scaling->target_scale == (std::vector<double>{1}));
  write("x,y\n1,-1\n2,1\n");
  const auto hinge = build_data(job("HINGE", 1, xy + "standardize: true"));
  BOOST_TEST(read_labels(*hinge.train).targets == (floats{-1, 1}));
  // These losses have the units of the target, so the target is standardized, too.
  for (const auto* loss : {"MEAN_SQUARED_ERROR", "MEAN_ABSOLUTE_ERROR"}) {
    write("x,y\n1,10\n2,30\n");
    const auto scaled = build_data(job(loss, 1, xy + "standardize: true"));
    BOOST_TEST(read_labels(*scaled.train).targets == (floats{-1, 1}));
  }
}

BOOST_FIXTURE_TEST_CASE(targets_outside_of_the_loss_are_refused, table_file) {
  write("x,y\n1,0\n2,0.5\n3,1\n4,346\n");
  BOOST_TEST(contains(error(job("BINARY_CROSS_ENTROPY", 1, xy)),
                      "training record 3 has target 346; model.loss: BINARY_CROSS_ENTROPY expects "
                      "0 to 1"));
  // The error names a record by its number in the file, whichever part of the split it is in.
  const auto parts = "split { train: 3 shuffle: false } batch: 1";
  BOOST_TEST(
    contains(error(job("BINARY_CROSS_ENTROPY", 1, xy, parts)), "test record 3 has target"));
  write("x,y\n1,-1\n2,0\n");
  BOOST_TEST(contains(error(job("HINGE", 1, xy)),
                      "training record 1 has target 0; model.loss: "
                      "HINGE expects -1 or 1"));
  // Data that a program passes gives the same error.
  write("x,y\n1,25\n2,0\n");
  const auto table = build_data(job("MEAN_SQUARED_ERROR", 1, xy)).train;
  BOOST_TEST(contains(error_of([&] { given_data(job("BINARY_CROSS_ENTROPY", 1, xy), {table}); }),
                      "has target 25"));
}

BOOST_FIXTURE_TEST_CASE(features_by_wildcards, table_file) {
  write("p2,y,p1,q,c\n1,2,3,4,r\n5,6,7,8,s\n");
  const auto found = [&](const std::string& features) {
    return build_data(job("MEAN_SQUARED_ERROR", 1, features + " target: 'y'")).feature_names;
  };
  BOOST_TEST(found("features: 'p*'") == (names{"p2", "p1"}), boost::test_tools::per_element());
  BOOST_TEST(found("features: 'q' features: 'p?'") == (names{"q", "p2", "p1"}),
             boost::test_tools::per_element());
  // The target, and columns that are named elsewhere, are left out.
  BOOST_TEST(found("features: '*' features: 'p1' categories: 'c'")
               == (names{"p2", "q", "c=r", "c=s", "p1"}),
             boost::test_tools::per_element());
  const auto said = [&](const std::string& features) {
    return error(job("MEAN_SQUARED_ERROR", 1, features + " target: 'y'"));
  };
  BOOST_TEST(contains(said("features: 'pp*'"), "no column matches \"pp*\""));
  BOOST_TEST(contains(said("features: 'y*'"), "matches no column except the one to predict"));
  BOOST_TEST(contains(said("features: 'p*' categories: 'c'"),
                      "data.csv.categories: column \"c\" is not in data.csv.features"));
  write(",x,y\n1,2,3\n5,6,7\n");
  BOOST_TEST(found("features: '*'") == (names{"x"}), boost::test_tools::per_element());
  write("x,y,\xf6,\xe9\n1,2,3,4\n5,6,7,8\n");
  BOOST_TEST(contains(said("features: '*'"), R"(the name of column "\xf6" is not UTF-8)"));
  BOOST_TEST(found("features: 'x*'") == (names{"x"}), boost::test_tools::per_element());
  write("a*,y,ab\n1,2,3\n5,6,7\n");
  BOOST_TEST(found("features: 'a*'") == (names{"a*"}), boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(classes_by_name, table_file) {
  write("x,species\n1,versicolor\n2,setosa\n3,virginica\n4,setosa\n");
  const auto data = build_data(job("SOFTMAX_CROSS_ENTROPY", 3, species + "standardize: true"));
  BOOST_TEST((data.train->record().labels == label_kind::classes));
  BOOST_TEST(data.train->record().label_width == 3u);
  BOOST_TEST(read_labels(*data.train).classes == (classes{1, 0, 2, 0}));
  BOOST_TEST(data.class_names == (names{"setosa", "versicolor", "virginica"}));
  BOOST_TEST(count_classes(*data.train) == (std::vector<std::uint64_t>{2, 1, 1}));
  BOOST_TEST(!data.scaling.has_value());
  BOOST_REQUIRE(data.normalization.has_value());
  BOOST_TEST(data.normalization->shift == (std::vector<double>{2.5}));
  BOOST_TEST(contains(error(job("SOFTMAX_CROSS_ENTROPY", 2, species)),
                      "column \"species\" has 3 classes (setosa, versicolor, virginica), but the "
                      "last layer has 2 units"));
  BOOST_TEST(contains(error(job("BINARY_CROSS_ENTROPY", 1, species)),
                      "BINARY_CROSS_ENTROPY takes two; use SOFTMAX_CROSS_ENTROPY"));
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, species)),
                      "model.loss: "
                      "MEAN_SQUARED_ERROR needs "
                      "targets, but data.csv.label"));
}

BOOST_FIXTURE_TEST_CASE(classes_by_number, table_file) {
  write("x,species\n1,10\n2,9\n3,-1\n4,9\n");
  const auto data = build_data(job("SOFTMAX_CROSS_ENTROPY", 3, species));
  BOOST_TEST(read_labels(*data.train).classes == (classes{2, 1, 0, 1}));
  BOOST_TEST(data.class_names == (names{"-1", "9", "10"}));
  write("x,species\n1,yes\n2,no\n");
  const auto two = build_data(job("BINARY_CROSS_ENTROPY", 1, species));
  BOOST_TEST(read_labels(*two.train).classes == (classes{1, 0}));
  write("x,species\n1,yes\n2,yes\n");
  BOOST_TEST(contains(error(job("BINARY_CROSS_ENTROPY", 1, species)),
                      "has 1 class (yes); expected at least 2"));
}

BOOST_FIXTURE_TEST_CASE(categories, table_file) {
  write("x,colour,y\n1,red,1\n3,blue,2\n5,red,3\n7,green,4\n");
  const std::string columns =
    "features: \"x\" features: \"colour\" target: \"y\" categories: \"colour\" ";
  const auto data = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "standardize: true"));
  BOOST_TEST(data.feature_names == (names{"x", "colour=blue", "colour=green", "colour=red"}));
  const auto row = features_of(*data.train, 1);
  BOOST_TEST(row[0] < 0);
  BOOST_TEST((floats{row.begin() + 1, row.end()}) == (floats{1, 0, 0}));
  const auto less = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "drop_first: true"));
  BOOST_TEST(less.feature_names == (names{"x", "colour=green", "colour=red"}));
  BOOST_TEST(features_of(*less.train, 1) == (floats{3, 0, 0}));
  BOOST_TEST(features_of(*less.train, 3) == (floats{7, 1, 0}));
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "categories: \"colour\"")),
                      "data.csv.categories[0]: column \"colour\" is not in data.csv.features"));
  BOOST_TEST(
    contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "drop_first: true")), "data.csv.drop_first"));
}

// A category that only records for testing have is no feature: its weight would never be trained.
BOOST_FIXTURE_TEST_CASE(categories_that_no_training_record_has, table_file) {
  write("colour,size,y\nred,1,1\nblue,2,2\nred,1,3\ngreen,1.0,4\nblue,3,5\n");
  const std::string columns = "features: \"colour\" features: \"size\" target: \"y\" categories: "
                              "\"colour\" categories: \"size\" ";
  const std::string parts = "split { train: 3 shuffle: false } batch: 1";
  for (const std::string more : {"", "sparse: true "}) {
    const auto data = build_data(job("MEAN_SQUARED_ERROR", 1, columns + more, parts));
    BOOST_TEST(data.feature_names == (names{"colour=blue", "colour=red", "size=1", "size=2"}));
    BOOST_TEST(features_of(*data.test, 0) == (floats{0, 0, 1, 0}));
    BOOST_TEST(features_of(*data.test, 1) == (floats{1, 0, 0, 0}));
  }
}

// New data of a trained model: its categories and replacements count, not those of the new table.
BOOST_FIXTURE_TEST_CASE(new_data_of_a_trained_model, table_file) {
  write("x,colour,y\n1,red,1\n3,blue,2\n");
  const auto how = job("MEAN_SQUARED_ERROR", 1,
                       "features: \"x\" features: \"colour\" target: \"y\" categories: "
                       "\"colour\" missing: MEAN");
  const auto trained = build_data(how);
  write("x,colour,y\n,pink,1\n,blue,2\n9,red,3\n");
  const auto data = build_new_data(how, trained.columns);
  BOOST_TEST(data.feature_names == (names{"x", "colour=blue", "colour=red"}));
  BOOST_TEST(features_of(*data.test, 0) == (floats{2, 0, 0}));
  BOOST_TEST(features_of(*data.test, 1) == (floats{2, 1, 0}));
  BOOST_TEST(features_of(*data.test, 2) == (floats{9, 0, 1}));
  // All values of a column may be missing.
  write("x,colour,y\n,red,1\n");
  BOOST_TEST(features_of(*build_new_data(how, trained.columns).test, 0) == (floats{2, 0, 1}));
}

// Records that are left out do not hide that float32 cannot represent the others.
BOOST_FIXTURE_TEST_CASE(dropped_records_are_not_checked, table_file) {
  for (const std::string more :
       {"1700000001,1\n1700000002,2\n", "1700000001,1\n,5\n1700000002,2\n"}) {
    write("x,y\n" + more);
    BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "missing: DROP")), "float32"));
  }
  write("x,y\n,1\n3,2\n1e300,\n5,6\n");
  const auto data = build_data(job("MEAN_SQUARED_ERROR", 1, xy + "missing: DROP"));
  BOOST_TEST(data.train->size() == 2u);
  BOOST_TEST(read_labels(*data.train).targets == (floats{2, 6}));
}

// Sparse features have the same values as dense ones. A record stores its numbers, even if they are
// 0, and its categories.
BOOST_FIXTURE_TEST_CASE(sparse_features, table_file) {
  write("x,colour,z,size,y\n1,red,0,10,1\n3,blue,1,9,2\n,red,0,9.0,3\n7,,4,2,4\n2,blue,0,10,5\n");
  const std::string columns = "features: \"x\" features: \"colour\" features: \"z\" features: "
                              "\"size\" categories: \"colour\" categories: \"size\" ";
  const std::string predicted[] = {"target: \"y\" ", "label: \"y\" "};
  for (const std::string more :
       {"missing: MEAN", "missing: DROP", "missing: MEDIAN drop_first: true standardize: true"})
    for (const auto& column : predicted)
      for (const std::string split : {"batch: 1", "split { train: 2 } batch: 1"}) {
        const auto loss =
          column.starts_with("label") ? "SOFTMAX_CROSS_ENTROPY" : "MEAN_SQUARED_ERROR";
        const auto all = columns + column + more;
        const auto units = column.starts_with("label") ? 5 : 1;
        const auto dense = build_data(job(loss, units, all, split));
        const auto sparse = build_data(job(loss, units, all + " sparse: true", split));
        BOOST_TEST((sparse.train->record().features == feature_kind::sparse));
        BOOST_TEST(sparse.feature_names == dense.feature_names);
        BOOST_TEST(sparse.normalization.has_value() == dense.normalization.has_value());
        for (const auto part : {&job_data::train, &job_data::test}) {
          const auto& a = *(sparse.*part);
          const auto& b = *(dense.*part);
          BOOST_TEST_REQUIRE(a.size() == b.size());
          BOOST_TEST(read_labels(a).targets == read_labels(b).targets);
          BOOST_TEST(read_labels(a).classes == read_labels(b).classes);
          for (std::uint64_t i = 0; i < a.size(); ++i) {
            BOOST_TEST(features_of(a, i) == features_of(b, i));
            const std::uint64_t record[] = {i};
            BOOST_TEST(a.entries(record) >= 2U);
            BOOST_TEST(a.entries(record) <= 4U);
          }
        }
      }
  const auto numbers = "features: \"x\" target: \"y\" missing: DROP sparse: true";
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, numbers)),
                      "data.csv.sparse: there are no columns of categories"));
  const auto all = columns + predicted[0] + "missing: DROP sparse: true";
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, all, "batch: 1 read_threads: 2")),
                      "data.read_threads: a worker reads sparse features on one thread"));
  auto exact = job("MEAN_SQUARED_ERROR", 1, all);
  exact.set_solver(proto::EXACT);
  BOOST_TEST(contains(error(exact), "data.csv.sparse: solver: EXACT needs dense features"));
}

// MEAN and MEDIAN do not replace the value to predict, so errors do not propose them.
BOOST_FIXTURE_TEST_CASE(missing_label, table_file) {
  write("x,y\n1,a\n2,\n3,b\n");
  const auto text = error(job("SOFTMAX_CROSS_ENTROPY", 2, "features: \"x\" label: \"y\""));
  BOOST_TEST(contains(text, "x.csv:3: column \"y\": no value, and this is the column to predict"));
  BOOST_TEST(contains(text, "data.csv.missing: DROP"));
  BOOST_TEST(!contains(text, "MEAN"));
}

BOOST_FIXTURE_TEST_CASE(notices, table_file) {
  write("x,,y\n1,0,2\n2,1,3\n3,2,4\n4,3,5\n5,4,6\n");
  const auto told = [&](const std::string& features, const std::string& split) {
    return build_data(job("MEAN_SQUARED_ERROR", 1, "target: \"y\" features: " + features,
                          split + " batch: 1"))
      .notices;
  };
  BOOST_TEST(told("\"x\"", "").empty());
  const auto nameless = told("\"*\"", "");
  BOOST_TEST_REQUIRE(nameless.size() == 1u);
  BOOST_TEST(
    nameless[0].ends_with("x.csv: column 2 has no name, so data.csv.features leaves it out"));
  BOOST_TEST(told("\"x\"", "split { train: 2 test: 2 }").empty()); // could be rounding
  BOOST_TEST(
    told("\"x\"", "split { train: 2 test: 1 }")
    == (names{"data.split.test: 1 is a number of records, so this part has a single record",
              "data.split: 2 of 5 records are in no part, and are not used"}));
}

BOOST_FIXTURE_TEST_CASE(missing_values_by_rule, table_file) {
  write("x,colour,y\n1,red,1\n,blue,2\n5,,3\n9,red,4\nNA,red,5\n");
  const std::string columns = "features: \"x\" features: \"colour\" target: \"y\" categories: "
                              "\"colour\" missing_text: \"NA\" ";
  BOOST_TEST(
    contains(error(job("MEAN_SQUARED_ERROR", 1, columns)), "x.csv:3: column \"x\": no value"));
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, columns)), "DROP, MEAN or MEDIAN"));
  const auto mean = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "missing: MEAN"));
  BOOST_TEST(mean.train->size() == 5u);
  BOOST_TEST(features_of(*mean.train, 1) == (floats{5, 1, 0}));
  BOOST_TEST(features_of(*mean.train, 2) == (floats{5, 0, 0}));
  // The value for missing entries is the mean of the training records only.
  const std::string half = "split { train: 3 shuffle: false } batch: 1";
  const auto part = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "missing: MEAN", half));
  BOOST_TEST(features_of(*part.test, 1)[0] == 3.0F);
  write("x,colour,y\n1,red,1\n,blue,2\n2,,3\n9,red,4\nNA,red,5\n");
  const auto median = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "missing: MEDIAN"));
  BOOST_TEST(features_of(*median.train, 1)[0] == 2.0F);
  const auto drop = build_data(job("MEAN_SQUARED_ERROR", 1, columns + "missing: DROP"));
  BOOST_TEST(drop.train->size() == 2u);
  BOOST_TEST(read_labels(*drop.train).targets == (floats{1, 4}));
  BOOST_TEST(drop.train->origin(1) == 3u);
  // Records with missing values are dropped. A category that occurs only in dropped records does
  // not exist.
  BOOST_TEST(drop.feature_names == (names{"x", "colour=red"}));
}

BOOST_FIXTURE_TEST_CASE(missing_targets, table_file) {
  write("x,y\n1,1\n2,\n");
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "missing: MEAN")),
                      "record 1 has no value in column \"y\", the column to predict"));
  BOOST_TEST(build_data(job("MEAN_SQUARED_ERROR", 1, xy + "missing: DROP")).train->size() == 1u);
  write("x,y\n,1\n2,\n");
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "missing: DROP")), "leaves none"));
  write("x,y\n,1\n,2\n");
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "missing: MEAN")),
                      "no training record has a value in column \"x\""));
}

BOOST_FIXTURE_TEST_CASE(what_to_predict, table_file) {
  write("x,y\n1,1\n2,2\n");
  BOOST_TEST(contains(error(job("MEAN_SQUARED_ERROR", 1, xy + "label: \"x\"")),
                      "target and label both name"));
  BOOST_TEST(
    contains(error(job("MEAN_SQUARED_ERROR", 1, "features: \"x\"")), "data.csv.target: missing"));
  BOOST_TEST(contains(error(job("SOFTMAX_CROSS_ENTROPY", 2, "features: \"x\" label: \"x\"")),
                      "column \"x\" is the label"));
  BOOST_TEST(contains(error(job("SOFTMAX_CROSS_ENTROPY", 2, xy)), "data.csv.label"));
}

BOOST_AUTO_TEST_SUITE_END()
