#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/gzip.hpp"
#include "kernels/formats/npy.hpp"
#include "tests/support/files.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/pictures.hpp"
#include "tests/support/temporary_directory.hpp"

#include <filesystem>
#include <numeric>

BOOST_AUTO_TEST_SUITE(data_sources)

using namespace troupe;
using namespace troupe::test;

namespace {

struct files {
  temporary_directory folder;

  std::string path(const std::string& name) const { return (folder / name).string(); }

  void write(const std::string& name, std::string_view text) const {
    write_file(folder / name, as_byte_span(text));
  }

  template <class T>
  void write(const std::string& name, npy_type type, std::vector<std::uint64_t> shape,
             std::vector<T> values) const {
    write_file(folder / name, write_npy(type, shape, std::as_bytes(std::span{values})));
  }

  /// Writes six records with two features and the classes 0 1 2 0 1 2.
  void write_arrays() const {
    std::vector<float> x(12);
    std::iota(x.begin(), x.end(), 0.0F);
    write<float>("x.npy", npy_type::f32, {6, 2}, x);
    write<std::int64_t>("y.npy", npy_type::i64, {6}, {0, 1, 2, 0, 1, 2});
  }

  proto::Job job(const std::string& data, const std::string& model = "") const {
    return parse_job("model { layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY " + model
                       + "} data { batch: 2 " + data + "}",
                     "job");
  }

  proto::Job npy_job(const std::string& more = "") const {
    return job("npy { features: \"" + path("x.npy") + "\" labels: \"" + path("y.npy") + "\" "
               + more);
  }
};

std::vector<float> features_of(const dataset& x, std::uint64_t record) {
  const std::vector<std::uint64_t> records{record};
  std::vector<float> features(x.record().feature_width());
  std::vector<std::int32_t> classes(x.record().label_elements());
  std::vector<float> targets(x.record().label_elements());
  x.read(records, std::span{features}, {classes, targets});
  return features;
}

std::string error(const proto::Job& job) {
  return error_of([&] { build_training_data(job); });
}

} // namespace

BOOST_FIXTURE_TEST_CASE(npy, files) {
  write_arrays();
  const auto whole = build_data(npy_job("}"));
  BOOST_TEST(whole.train->size() == 6u);
  BOOST_TEST(whole.test == whole.train);
  BOOST_TEST(whole.train->record().label_width == 3u);
  BOOST_TEST(features_of(*whole.train, 5) == (std::vector<float>{10, 11}));
  write_file(folder / "x.npy", gzip(read_file(folder / "x.npy")));
  BOOST_TEST(build_data(npy_job("}")).train->size() == 6u);
  write<float>("tx.npy", npy_type::f32, {1, 2}, {5, 6});
  write<std::int64_t>("ty.npy", npy_type::i64, {1}, {2});
  const auto tests =
    " test_features: \"" + path("tx.npy") + "\" test_labels: \"" + path("ty.npy") + "\" }";
  BOOST_TEST(build_data(npy_job(tests)).test->size() == 1u);
  const auto split = build_data(npy_job(tests + " split { validation: 2 }"));
  BOOST_TEST(split.train->size() == 4u);
  BOOST_TEST(split.validation->size() == 2u);
  BOOST_TEST(split.test->size() == 1u);
  BOOST_TEST(split.evaluated() == split.validation);
  write<float>("tx.npy", npy_type::f32, {1, 3}, {5, 6, 7});
  BOOST_TEST(contains(error(npy_job(tests)), "data.npy.test_features: records of (3) numbers"));
  BOOST_TEST(
    contains(error(npy_job("} split { train: 5 validation: 1 }")), "nothing is left for test"));
}

BOOST_FIXTURE_TEST_CASE(npy_in_several_files, files) {
  // The third class occurs only in the second file.
  write<float>("x-1.npy", npy_type::f32, {2, 2}, {0, 1, 2, 3});
  write<float>("x-2.npy", npy_type::f32, {1, 2}, {4, 5});
  write<std::int64_t>("y-1.npy", npy_type::i64, {2}, {0, 1});
  write<std::int64_t>("y-2.npy", npy_type::i64, {1}, {2});
  const auto several = [&](const std::string& features, const std::string& labels) {
    auto result =
      job("npy { features: \"" + path(features) + "\" labels: \"" + path(labels) + "\" }");
    result.mutable_model()->clear_layer();
    return result;
  };
  const auto data = build_data(several("x-*.npy", "y-?.npy"));
  BOOST_TEST(data.train->size() == 3u);
  BOOST_TEST(to_string(data.train->record()) == "(2) numbers and 3 classes");
  BOOST_TEST(features_of(*data.train, 2) == (std::vector<float>{4, 5}));
  BOOST_TEST(features_of(*data.train, 1) == (std::vector<float>{2, 3}));
  std::vector<std::int32_t> classes(3);
  BOOST_TEST(data.train->read_labels(std::vector<std::uint64_t>{2, 0, 1}, {classes, {}}));
  BOOST_TEST(classes == (std::vector<std::int32_t>{2, 0, 1}));
  BOOST_TEST(contains(error(several("x-*.npy", "y-1.npy")),
                      "data.npy.features: 2 files of features, 1 of labels; expected"));
  BOOST_TEST(contains(error(several("z-*.npy", "y-*.npy")), "z-*.npy: no file has such a name"));
  BOOST_TEST(contains(error(several("none/x-*.npy", "y-*.npy")), "cannot read the directory"));
  write<float>("x-2.npy", npy_type::f32, {1, 3}, {4, 5, 6});
  BOOST_TEST(contains(error(several("x-*.npy", "y-*.npy")),
                      "x-2.npy: records of (3) numbers and 3 classes, but "));
}

BOOST_FIXTURE_TEST_CASE(image_folder, files) {
  const auto add = [&](const std::string& name, std::size_t height, std::uint8_t value) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_file(folder / name,
               write_png(height, 2, PNG_FORMAT_GRAY, std::vector<std::uint8_t>(height * 2, value)));
  };
  add("all/cat/b.png", 3, 51);
  add("all/cat/a.PNG", 3, 255);
  add("all/ant/x.png", 3, 0);
  write("all/ant/notes.txt", "not a picture");
  write("all/ant/.hidden.png", "not a picture");
  const auto pictures = [&](const std::string& more, const std::string& name = "all") {
    return job("image_folder { path: \"" + path(name) + "\" " + more);
  };
  const auto data = build_data(pictures("channels: 1 }"));
  BOOST_TEST(to_string(data.train->record()) == "(1, 3, 2) numbers and 2 classes");
  BOOST_TEST(data.class_names == (std::vector<std::string>{"ant", "cat"}));
  BOOST_TEST(data.train->size() == 3u);
  // Records are in the order of their file names: ant/x, cat/a, cat/b.
  BOOST_TEST(features_of(*data.train, 1) == std::vector<float>(6, 1.0F));
  BOOST_TEST(features_of(*data.train, 2) == std::vector<float>(6, 51 / 255.0F));
  std::vector<std::int32_t> classes(3);
  data.train->read_labels(std::vector<std::uint64_t>{0, 1, 2}, {classes, {}});
  BOOST_TEST(classes == (std::vector<std::int32_t>{0, 1, 1}));
  BOOST_TEST(to_string(build_data(pictures("height: 5 width: 7 }")).train->record().dims)
             == "(3, 5, 7)");
  BOOST_TEST(contains(error(pictures("channels: 1 } augment { crop_padding: 2 }")),
                      "data.augment.crop_padding: 2; expected less than"));
  add("test/cat/c.png", 3, 9);
  const auto with_test = "channels: 1 test_path: \"" + path("test") + "\" }";
  BOOST_TEST(build_data(pictures(with_test)).test->size() == 1u);
  add("test/dog/d.png", 3, 9);
  BOOST_TEST(contains(error(pictures(with_test)), "the class \"dog\" has no folder among"));
  add("all/cat/c.png", 4, 0);
  BOOST_TEST(
    contains(error_of([&] { features_of(*build_data(pictures("channels: 1 }")).train, 3); }),
             "cat/c.png: a picture of 2 x 4 pixels, but the first one has 2 x 3"));
  BOOST_TEST(contains(error(pictures("}", "none")), "none: cannot read the folder"));
  std::filesystem::create_directories(folder / "empty");
  BOOST_TEST(contains(error(pictures("}", "empty")), "empty: no pictures"));
  std::filesystem::create_directories(folder / "all/eel");
  std::filesystem::create_directories(folder / "all/fox");
  BOOST_TEST(
    contains(error(pictures("}")), "4 folders of classes, but the last layer has 3 units"));
  write_arrays();
  BOOST_TEST(contains(error(npy_job("} augment { flip: true }")),
                      "data.augment: records of (2) numbers and 3 classes; expected images"));
}

BOOST_FIXTURE_TEST_CASE(tokens, files) {
  write<std::int64_t>("x.npy", npy_type::i64, {2, 3}, {0, 1, 2, 5, 4, 3});
  write<std::int32_t>("y.npy", npy_type::i32, {2}, {0, 1});
  const auto tokens_with = [&](const std::string& embedding) {
    return parse_job("model { layer { " + embedding
                       + " } layer { flatten {} } "
                         "layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY } "
                         "data { batch: 2 npy { features: \""
                       + path("x.npy") + "\" labels: \"" + path("y.npy") + "\" } }",
                     "job");
  };
  const auto data = build_data(tokens_with("embedding { width: 4 }"));
  BOOST_TEST(to_string(data.train->record()) == "(3) tokens of 6 and 3 classes");
  BOOST_TEST(data.train->record().vocabulary == 6u);
  std::vector<std::int32_t> row(3);
  std::vector<std::int32_t> classes(1);
  data.train->read(std::vector<std::uint64_t>{1}, std::span{row}, {classes, {}});
  BOOST_TEST(row == (std::vector<std::int32_t>{5, 4, 3}));
  const auto nested = "block { layer { embedding { width: 4 entries: 9 } } }";
  BOOST_TEST(build_data(tokens_with(nested)).train->record().vocabulary == 9u);
  BOOST_TEST(contains(error(tokens_with("embedding { width: 4 entries: 5 }")),
                      "x.npy: record 1 has the token 5; expected 0 to 4"));
  // A model without an embedding layer reads whole numbers as features, not as tokens.
  BOOST_TEST(to_string(build_data(tokens_with("layer_norm {}")).train->record())
             == "(3) numbers and 3 classes");
  // Each position has a class.
  write<std::int32_t>("y.npy", npy_type::i32, {2, 3}, {0, 1, 2, 2, 1, 0});
  const auto tagged = build_data(tokens_with("embedding { width: 4 }"));
  BOOST_TEST(tagged.train->record().labels_per_record == 3u);
  classes.resize(3);
  tagged.train->read(std::vector<std::uint64_t>{1}, std::span{row}, {classes, {}});
  BOOST_TEST(classes == (std::vector<std::int32_t>{2, 1, 0}));
  // Positions with padding have the label -100. This label is an error unless the model ignores it.
  write<std::int32_t>("y.npy", npy_type::i32, {2, 3}, {0, 1, -100, 2, -100, -100});
  BOOST_TEST(contains(error(tokens_with("embedding { width: 4 }")), "record 0 has label -100"));
  auto padded = tokens_with("embedding { width: 4 }");
  padded.mutable_model()->set_ignored_label(-100);
  build_data(padded).train->read(std::vector<std::uint64_t>{1}, std::span{row}, {classes, {}});
  BOOST_TEST(classes == (std::vector<std::int32_t>{2, -100, -100}));
}

BOOST_FIXTURE_TEST_CASE(npz, files) {
  const std::string text = "npz { path: \"" + path("a.npz") + "\" features: \"x\" labels: \"y\" }";
  BOOST_TEST(contains(error(job(text)), "a.npz: cannot open"));
  write("a.npz", "PK");
  BOOST_TEST(contains(error(job(text)), "a.npz: not a zip archive"));
  // These files were written by NumPy: x = arange(3) and y = ones((2, 2)), and a compressed file
  // with x = zeros(300).
  const auto corpus = test::source_folder() / "tests/fuzz/corpus";
  const auto numpy = [&](const std::string& name, const std::string& arrays) {
    return job("npz { path: \"" + (corpus / "npy" / name).string() + "\" " + arrays + "}");
  };
  const auto data = build_data(numpy("stored", "features: \"x\" labels: \"x\""));
  BOOST_TEST(data.train->size() == 3u);
  BOOST_TEST(features_of(*data.train, 2) == (std::vector<float>{2}));
  const auto packed = numpy("deflated",
                            "features: \"x\" labels: \"x\" test_features: \"x\" "
                            "test_labels: \"x\"");
  BOOST_TEST(build_data(packed).test->size() == 300u);
  BOOST_TEST(contains(error(numpy("stored", "features: \"X\" labels: \"y\"")),
                      "stored: no array \"X\"; did you mean \"x\"?"));
  BOOST_TEST(
    contains(error(numpy("stored", "features: \"x\" labels: \"y\"")), "stored: x: shape (3), but"));
}

BOOST_FIXTURE_TEST_CASE(normalization, files) {
  write_arrays();
  auto x =
    build_data(npy_job("} split { train: 3 shuffle: false } normalize { kind: UNIT_RANGE }"));
  BOOST_TEST(features_of(*x.train, 2) == (std::vector<float>{1, 1}));
  BOOST_TEST(features_of(*x.test, 0) == (std::vector<float>{1.5F, 1.5F}));
  x = build_data(npy_job("} normalize { mean: 1 stddev: 2 }"));
  BOOST_TEST(features_of(*x.train, 0) == (std::vector<float>{-0.5F, 0}));
  BOOST_TEST(x.test == x.train);
  BOOST_TEST(!x.scaling);
  x = build_data(npy_job("} normalize { mean: 1 mean: 2 stddev: 2 stddev: 1 }"));
  BOOST_TEST(features_of(*x.train, 1) == (std::vector<float>{0.5F, 1}));
  const auto three = "} normalize { mean: 1 mean: 2 mean: 3 stddev: 1 stddev: 1 stddev: 1 }";
  BOOST_TEST(contains(error(npy_job(three)), "data.normalize.mean: 3 numbers; expected 1, or one"));
  // STANDARDIZE also scales targets. `scaling` records how.
  write<float>("y.npy", npy_type::f32, {6}, {1, 2, 3, 4, 5, 6});
  x = build_data(npy_job("} split { train: 2 shuffle: false } normalize { kind: STANDARDIZE }"));
  BOOST_REQUIRE(x.scaling.has_value());
  BOOST_TEST(x.scaling->feature_mean == (std::vector<double>{1, 2}));
  BOOST_TEST(x.scaling->target_scale == (std::vector<double>{1}));
}

BOOST_FIXTURE_TEST_CASE(parts_of_all_records, files) {
  write_arrays();
  const auto sizes = [&](const std::string& split) {
    const auto x = build_data(npy_job("} split { " + split + " }"));
    return std::vector<std::uint64_t>{x.train->size(), x.validation ? x.validation->size() : 0,
                                      x.test->size()};
  };
  using expected = std::vector<std::uint64_t>;
  BOOST_TEST(sizes("train: 0.5") == (expected{3, 0, 3}));
  BOOST_TEST(sizes("test: 0.2") == (expected{5, 0, 1}));
  BOOST_TEST(sizes("validation: 0.2 test: 2") == (expected{3, 1, 2}));
  BOOST_TEST(sizes("train: 2 validation: 1 test: 1") == (expected{2, 1, 1}));
  // 0.25 of 6 records are 1.5, which is rounded to 2.
  BOOST_TEST(sizes("train: 0.5 validation: 0.25 test: 0.25") == (expected{2, 2, 2}));
  BOOST_TEST(contains(error(npy_job("} split { train: 0.9 test: 0.9 }")), "are more than"));
  BOOST_TEST(contains(error(npy_job("} split { train: 5 validation: 1 test: 1 }")),
                      "train 5, validation 1 and test 1 are more than the data's 6 records"));
  BOOST_TEST(contains(error(npy_job("} split { test: 0.01 }")), "nothing is left for test"));
  const std::vector<std::string> unused{
    "data.split: 2 of 6 records are in no part, and are not used"};
  for (const std::string how : {"", " shuffle: false"})
    BOOST_TEST(build_data(npy_job("} split { train: 2 test: 2" + how + " }")).notices == unused);
  BOOST_TEST(build_data(npy_job("} split { train: 2 test: 4 }")).notices.empty());
}

BOOST_FIXTURE_TEST_CASE(text, files) {
  write("a.txt", "abcabcabca");
  const std::string text = "text { path: \"" + path("a.txt") + "\" window: 2 ";
  const auto whole = build_data(job(text + "}"));
  BOOST_TEST(whole.train->size() == 4u);
  BOOST_TEST(whole.train->record().vocabulary == 3u);
  BOOST_TEST((whole.characters->characters() == U"abc"));
  BOOST_TEST(build_data(job(text + "stride: 1 }")).train->size() == 8u);
  const auto parts = build_data(job(text + "stride: 1 } split { train: 0.4 validation: 3 }"));
  BOOST_TEST(parts.train->size() == 2u);
  BOOST_TEST(parts.validation->size() == 1u);
  BOOST_TEST(parts.test->size() == 1u);
  BOOST_TEST(&parts.test->storage() == &parts.train->storage());
  const auto wider = build_data(job(text + "vocabulary: \"dcbaa\" }"));
  BOOST_TEST(wider.train->record().vocabulary == 4u);
  BOOST_TEST(contains(error(job(text + "vocabulary: \"ab\" }")), "a.txt:1:3: the character \"c\""));
  BOOST_TEST(contains(error(job(text + "} split { test: 2 }")), "too few for a window of 2"));
}

BOOST_FIXTURE_TEST_CASE(libsvm, files) {
  write("train.txt", "1 1:1 3:2\n-1 2:1\n1\n-1 1:1\n");
  write("test.txt", "-1 4:1\n1 1:1\n");
  const std::string plain = "libsvm { path: \"" + path("train.txt") + "\" ";
  const auto alone = build_data(job(plain + "}"));
  BOOST_TEST((alone.train->record().features == feature_kind::sparse));
  BOOST_TEST(alone.train->record().feature_width() == 3u);
  BOOST_TEST(alone.train->record().label_width == 3u); // as many classes as the model has units
  const auto tests = "test_path: \"" + path("test.txt") + "\" ";
  const auto both = build_data(job(plain + tests + "}"));
  BOOST_TEST(both.train->record().feature_width() == 4u);
  BOOST_TEST((both.train->record() == both.test->record()));
  BOOST_TEST(build_data(job(plain + "features: 9 }")).train->record().feature_width() == 9u);
  BOOST_TEST(contains(error(job(plain + tests + "features: 3 }")),
                      "test.txt: index 4 is beyond the 3 features"));
  write("wide.txt", "1 1:1 2147483648:2\n-1 2:1\n1\n-1 1:1\n");
  const auto wide = "libsvm { path: \"" + path("wide.txt") + "\" ";
  BOOST_TEST(
    contains(error(job(wide + "}")),
             "wide.txt: the largest index is 2147483648; more than 67108864 features, with "
             "a weight each for every unit, must be stated: set data.libsvm.features"));
  BOOST_TEST(contains(error(job(plain + "test_path: \"" + path("wide.txt") + "\" }")),
                      "wide.txt: the largest index is 2147483648"));
  BOOST_TEST(build_data(job(wide + "features: 2147483648 }")).train->record().feature_width()
             == 2147483648U);
  const auto targets = build_data(job(plain + "labels: TARGETS }"));
  BOOST_TEST((targets.train->record().labels == label_kind::targets));
  write("test.txt", "0 1:1\n");
  BOOST_TEST(
    contains(error(job(plain + tests + "}")), "test.txt: record 0 has label 0; expected -1 or 1"));
}

// A batch of 0 means that a step takes all records. The job keeps the 0, so that all nodes have the
// same job.
BOOST_FIXTURE_TEST_CASE(a_batch_of_all_records, files) {
  write_arrays();
  auto all = npy_job("} split { train: 5 }");
  all.mutable_data()->set_batch(0);
  const auto data = build_data(all);
  const auto context = make_job_context(all, shape_of(*data.train));
  BOOST_TEST(context->batch() == 5u);
  BOOST_TEST(context->training->max_rows() == 5u);
  BOOST_TEST(context->job.data().batch() == 0u);
  all.mutable_data()->set_batch(6);
  BOOST_TEST(contains(error(all), "data.batch: 6 is more than the 5 training records"));
}

BOOST_AUTO_TEST_SUITE_END()
