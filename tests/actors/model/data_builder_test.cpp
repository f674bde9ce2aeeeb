#include "actors/model/data_builder.hpp"

#include "kernels/formats/file.hpp"
#include "kernels/formats/gzip.hpp"
#include "kernels/formats/idx.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <cstdlib>

BOOST_AUTO_TEST_SUITE(data_builder)

using namespace troupe;
using namespace troupe::test;

namespace {

/// The label, or the first target, of a record.
float label_of(const dataset& data, std::uint64_t record) {
  const std::vector<std::uint64_t> records{record};
  std::vector<float> features(data.record().feature_width());
  std::vector<std::int32_t> classes(1);
  std::vector<float> targets(data.record().label_width);
  if (data.record().labels == label_kind::classes) {
    data.read(records, std::span<float>{features}, {classes, {}});
    return static_cast<float>(classes[0]);
  }
  data.read(records, std::span<float>{features}, {{}, targets});
  return targets[0];
}

/// Files with five images of 2 x 1 pixels with labels 0 1 2 1 0, and a job that reads them. One of
/// the files is compressed.
struct idx_files {
  temporary_directory folder;
  proto::Job job = parse_job(R"(
    model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }
    data { idx { images: "${TROUPE_TEST_DIR}/images" labels: "${TROUPE_TEST_DIR}/labels" } batch: 2 })",
                             "job");

  idx_files() {
    ::setenv("TROUPE_TEST_DIR", folder.path().c_str(), 1);
    write("images", {5, 2, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    write("labels", {5}, {0, 1, 2, 1, 0});
    write_file(folder / "images", gzip(read_file(folder / "images")));
  }

  void write(const std::string& name, const std::vector<std::uint64_t>& shape,
             const std::vector<std::uint8_t>& values) {
    write_file(folder / name, write_idx_u8(shape, values));
  }

  std::string error(std::initializer_list<const char*> overrides = {}) {
    auto changed = job;
    for (const auto* text : overrides)
      apply_override(changed, text);
    return error_of([&] { build_training_data(changed); });
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(digits) {
  const auto data = build_data(digits_job());
  BOOST_TEST(data.train->size() == 100u);
  BOOST_TEST(data.test->size() == 20u);
  BOOST_TEST(data.train->record().label_width == 10u);
  BOOST_TEST(!data.scaling);
  auto job = digits_job();
  apply_override(job, "data.digits.test=0");
  const auto all = build_data(job);
  BOOST_TEST(all.train->size() == 100u);
  BOOST_TEST(all.test == all.train);
}

BOOST_FIXTURE_TEST_CASE(idx_split, idx_files) {
  const auto whole = build_data(job);
  BOOST_TEST(whole.train->size() == 5u);
  BOOST_TEST(whole.test == whole.train);
  BOOST_TEST(whole.train->record().label_width == 3u);
  apply_override(job, "data.split={ train: 2 test: 2 shuffle: false }");
  const auto split = build_data(job);
  BOOST_TEST(split.train->size() == 2u);
  BOOST_TEST(split.test->size() == 2u);
  BOOST_TEST(label_of(*split.train, 1) == 1.0F);
  BOOST_TEST(label_of(*split.test, 0) == 1.0F); // record 3 of 5
  BOOST_TEST(label_of(*split.test, 1) == 0.0F);
  apply_override(job, "data.split={ test: 1 }");
  BOOST_TEST(build_data(job).train->size() == 4u);
  apply_override(job, "data.split={ train: 3 }");
  BOOST_TEST(build_data(job).test->size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(idx_test_files, idx_files) {
  write("ti", {1, 1, 2}, {1, 2});
  write("tl", {1}, {2});
  apply_override(job, "data.idx.test_images=${TROUPE_TEST_DIR}/ti");
  apply_override(job, "data.idx.test_labels=${TROUPE_TEST_DIR}/tl");
  const auto data = build_data(job);
  BOOST_TEST(data.train->size() == 5u);
  BOOST_TEST(data.test->size() == 1u);
  write("ti", {1, 1, 3}, {1, 2, 3});
  BOOST_TEST(
    contains(error(), "data.idx.test_images: images of 3 pixels, but data.idx.images has 2"));
}

BOOST_FIXTURE_TEST_CASE(idx_errors, idx_files) {
  BOOST_TEST(
    contains(error({"data.idx.images=${TROUPE_TEST_DIR}/no"}), "/no: cannot open: No such file"));
  BOOST_TEST(contains(error({"data.idx.images=${TROUPE_TEST_NO}/x"}),
                      "data.idx.images: \"${TROUPE_TEST_NO}/x\": the environment variable "
                      "TROUPE_TEST_NO is not set"));
  BOOST_TEST(contains(error({"data.idx.images=${TROUPE_TEST_DIR}/labels"}),
                      "/labels: expected 3 dimensions"));
  BOOST_TEST(contains(error({"model.layer[0].dense.units=2"}),
                      "/labels: record 2 has label 2, outside the classes 0 to 1"));
  BOOST_TEST(
    contains(error({"data.batch=6"}), "data.batch: 6 is more than the 5 training records"));
  BOOST_TEST(contains(error({"data.split={ train: 4 test: 2 }"}),
                      "data.split: train 4 and test 2 are more than the data's 5 records"));
  BOOST_TEST(contains(error({"data.split={ train: 18446744073709551615 test: 2 }"}),
                      "more than the data's"));
  BOOST_TEST(contains(error({"data.split={ train: 5 }"}), "nothing is left for test"));
  BOOST_TEST(contains(error({"data.split={ test: 5 }"}), "nothing is left for train"));
  auto packed = read_file(folder / "images");
  packed.pop_back();
  write_file(folder / "cut", packed);
  BOOST_TEST(
    contains(error({"data.idx.images=${TROUPE_TEST_DIR}/cut"}), "/cut: truncated gzip data"));
  write("labels", {4}, {0, 1, 2, 1});
  BOOST_TEST(contains(error(), "/images has 5 images, but "));
}

BOOST_AUTO_TEST_CASE(csv) {
  const temporary_directory folder;
  write_file(folder / "x.csv", bytes_of("a,b,y\n1,10,100\n3,20,300\n100,0,500\n"));
  auto job = csv_job((folder / "x.csv").string());
  const auto plain = build_data(job);
  BOOST_TEST(plain.train->record().feature_width() == 2u);
  BOOST_TEST(label_of(*plain.train, 2) == 500.0F);
  BOOST_REQUIRE(plain.scaling.has_value());
  BOOST_TEST(plain.scaling->feature_mean == (std::vector<double>{0, 0}));
  // Mean and scale are computed from the training records only.
  apply_override(job, "data.csv.standardize=true");
  apply_override(job, "data.split={ train: 2 shuffle: false }");
  const auto scaled = build_data(job);
  BOOST_TEST(scaled.scaling->feature_mean == (std::vector<double>{2, 15}),
             boost::test_tools::per_element());
  BOOST_TEST(label_of(*scaled.train, 0) == -1.0F);
  BOOST_TEST(label_of(*scaled.test, 0) == 3.0F);
  apply_override(job, "data.csv.target=z");
  BOOST_TEST(contains(error_of([&] { build_data(job); }), "x.csv: no column \"z\""));
}

BOOST_AUTO_TEST_CASE(given_by_the_program) {
  const temporary_directory folder;
  write_file(folder / "x.csv", bytes_of("a,b,y\n1,10,100\n3,20,300\n100,0,500\n"));
  auto job = csv_job((folder / "x.csv").string());
  const auto table = build_data(job).train;
  BOOST_TEST((given_data(job, {table}).test == table));
  const auto digits = build_data(digits_job()).train;
  BOOST_TEST(
    error_of([&] {
      given_data(job, {table, digits});
    })
    == "data: training records have (2) numbers and 1 targets, test records (1, 28, 28) numbers "
       "and 10 classes; expected the same");
  apply_override(job, "data.batch=4");
  BOOST_TEST(contains(error_of([&] { given_data(job, {table}); }), "data.batch: 4 is more than"));
}

BOOST_AUTO_TEST_CASE(no_source) {
  BOOST_TEST(contains(error_of([] { build_data({}); }), "data: no source"));
}

BOOST_AUTO_TEST_SUITE_END()
