#include "kernels/data/arrays.hpp"

#include "kernels/data/normalized.hpp"
#include "kernels/formats/gzip.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <array>
#include <cmath>

BOOST_AUTO_TEST_SUITE(arrays)

using namespace troupe;
using namespace troupe::test;

namespace {

/// A NumPy file in memory, and the array that was read from it.
struct made {
  std::vector<std::byte> file;
  npy_array array;

  template <class T>
  made(npy_type type, std::vector<std::uint64_t> shape, std::vector<T> values)
    : file(write_npy(type, shape, std::as_bytes(std::span{values}))), array(parse_npy(file, "x")) {}
};

std::shared_ptr<const dataset> records_of(const made& features, const made& labels) {
  return npy_records(features.array, share(features.file), "x.npy", labels.array, "y.npy");
}

std::vector<float> features_of(const dataset& x, std::vector<std::uint64_t> records) {
  std::vector<float> features(records.size() * x.record().feature_width());
  std::vector<std::int32_t> classes(records.size());
  std::vector<float> targets(records.size() * x.record().label_width);
  x.read(records, std::span{features}, {classes, targets});
  return features;
}

const made two_classes{npy_type::i64, {2}, std::vector<std::int64_t>{0, 1}};

} // namespace

BOOST_AUTO_TEST_CASE(floats_and_targets) {
  const made x{npy_type::f64, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6}};
  const made y{npy_type::f32, {2, 2}, std::vector<float>{1, 2, 3, 4}};
  const auto data = records_of(x, y);
  BOOST_TEST(data->size() == 2u);
  BOOST_TEST(to_string(data->record()) == "(3) numbers and 2 targets");
  std::vector<float> features(3);
  std::vector<float> targets(2);
  data->read(std::vector<std::uint64_t>{1}, std::span{features}, {{}, targets});
  BOOST_TEST(features == (std::vector<float>{4, 5, 6}));
  BOOST_TEST(targets == (std::vector<float>{3, 4}));
}

BOOST_AUTO_TEST_CASE(numbers_that_float32_cannot_tell_apart) {
  const made x{npy_type::f64, {2, 2}, std::vector<double>{1, 1e9 + 1, 2, 1e9 + 2}};
  BOOST_TEST(contains(error_of([&] { records_of(x, two_classes); }),
                      "x.npy: feature 1: the values are from 1000000001 to 1000000002. Models"));
  const made fine{npy_type::f64, {2, 1}, std::vector<double>{1, 2}};
  const made y{npy_type::f64, {2}, std::vector<double>{1e9 + 1, 1e9 + 2}};
  BOOST_TEST(
    contains(error_of([&] { records_of(fine, y); }), "y.npy: the target: the values are from"));
}

BOOST_AUTO_TEST_CASE(bytes_are_images) {
  const made x{npy_type::u8, {2, 1, 2}, std::vector<std::uint8_t>{0, 51, 102, 255}};
  const auto data = records_of(x, two_classes);
  BOOST_TEST(to_string(data->record()) == "(1, 1, 2) numbers and 2 classes");
  BOOST_TEST(features_of(*data, {1, 0}) == (std::vector<float>{0.4F, 1, 0, 0.2F}));
  const made flat{npy_type::u8, {2}, std::vector<std::uint8_t>{0, 255}};
  BOOST_TEST(to_string(records_of(flat, two_classes)->record()) == "(1) numbers and 2 classes");
}

BOOST_AUTO_TEST_CASE(errors) {
  const made x{npy_type::f32, {2, 2}, std::vector<float>{1, 2, 3, 4}};
  const auto error = [](const made& features, const made& labels) {
    return error_of([&] { records_of(features, labels); });
  };
  const made three{npy_type::i32, {3}, std::vector<std::int32_t>{0, 1, 2}};
  BOOST_TEST(contains(error(x, three), "x.npy: shape (2, 2), but y.npy has shape (3)"));
  const made scalar{npy_type::f32, {}, std::vector<float>{1}};
  BOOST_TEST(contains(error(x, scalar), "y.npy: a single number"));
  BOOST_TEST(contains(error(scalar, x), "x.npy: a single number"));
  const made infinite{npy_type::f64, {2, 1}, std::vector<double>{1, 1e39}};
  BOOST_TEST(contains(error(infinite, two_classes), "x.npy: record 1 has the feature"));
  const made none{npy_type::f32, {2, 0}, std::vector<float>{}};
  BOOST_TEST(contains(error(none, two_classes), "records without features"));
  const made deep{npy_type::f32, {2, 1, 1}, std::vector<float>{1, 2}};
  BOOST_TEST(contains(error(x, deep), "y.npy: labels of shape (2, 1, 1)"));
  const made half{npy_type::i32, {2}, std::vector<std::int32_t>{0, -1}};
  BOOST_TEST(contains(error(x, half), "y.npy: record 1 has label -1"));
  BOOST_TEST(contains(error_of([&] {
                        array_dataset{shape{3}, std::vector<float>{1, 2, 3, 4}, stored_labels{}};
                      }),
                      "do not make 0 records"));
}

// Whole numbers that do not select rows of a table.
BOOST_AUTO_TEST_CASE(any_whole_numbers) {
  const auto read = [](std::int64_t last, std::size_t vocabulary) {
    const made features{npy_type::i64, {2, 2}, std::vector<std::int64_t>{5, 220, -6, last}};
    const made labels{npy_type::i64, {2}, std::vector<std::int64_t>{0, 1}};
    array_reading how;
    how.vocabulary = vocabulary;
    return npy_records(features.array, share(features.file), "x.npy", labels.array, "y.npy", how);
  };
  const auto data = read(7, any_int32);
  BOOST_TEST(to_string(data->record()) == "(2) tokens of int32 and 2 classes");
  std::vector<std::int32_t> row(2);
  std::vector<std::int32_t> classes(1);
  data->read(std::vector<std::uint64_t>{1}, std::span{row}, {classes, {}});
  BOOST_TEST(row == (std::vector<std::int32_t>{-6, 7}));
  BOOST_TEST(contains(error_of([&] { read(std::int64_t{1} << 31, any_int32); }),
                      "record 1 has the token 2147483648; expected whole numbers that fit int32"));
  BOOST_TEST(contains(error_of([&] { read(7, 221); }), "record 1 has the token -6; expected 0 to"));
}

BOOST_AUTO_TEST_CASE(a_mapped_file_is_checked_when_it_is_read) {
  const temporary_directory folder;
  const made x{npy_type::f32, {2, 2}, std::vector<float>{1, 2, NAN, 4}};
  write_file(folder / "x.npy", x.file);
  const auto mapped = map_plain_or_gzip(folder / "x.npy");
  BOOST_TEST(mapped.mapped);
  const auto data =
    npy_records(parse_npy(mapped.bytes, "x.npy"), mapped, "x.npy", two_classes.array, "y.npy");
  BOOST_TEST(data->memory_bytes() == 2 * sizeof(std::int32_t));
  BOOST_TEST(features_of(*data, {0}) == (std::vector<float>{1, 2}));
  BOOST_TEST(contains(error_of([&] {
                        features_of(*data, {0, 1});
                      }),
                      "x.npy: record 1 has the feature nan"));
  write_file(folder / "x.npy.gz", gzip(x.file));
  const auto unpacked = map_plain_or_gzip(folder / "x.npy.gz");
  BOOST_TEST(!unpacked.mapped);
  BOOST_TEST(std::ranges::equal(unpacked.bytes, x.file));
  BOOST_TEST(contains(error_of([&] { records_of(x, two_classes); }), "record 1 has the feature"));
}

// -- normalization ------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(standardized) {
  const made x{npy_type::f32, {2, 3}, std::vector<float>{1, 5, 100, 3, 5, 300}};
  const auto data = records_of(x, two_classes);
  const auto how = standardization(*data);
  BOOST_TEST(how.shift == (std::vector<double>{2, 5, 200}));
  BOOST_TEST(how.scale == (std::vector<double>{1, 1, 100})); // the second feature is constant
  BOOST_TEST(features_of(*normalized(data, how), {1, 0})
             == (std::vector<float>{1, 0, 1, -1, 0, -1}));
}

BOOST_AUTO_TEST_CASE(to_unit_range) {
  const made x{npy_type::f32, {3, 2}, std::vector<float>{1, 7, 3, 7, 2, 7}};
  const made y{npy_type::i32, {3}, std::vector<std::int32_t>{0, 1, 1}};
  const auto data = records_of(x, y);
  const auto scaled = normalized(data, unit_range(*data));
  BOOST_TEST(features_of(*scaled, {0, 1, 2}) == (std::vector<float>{0, 0, 1, 0, 0.5F, 0}));
  BOOST_TEST(&scaled->storage() == data.get());
}

BOOST_AUTO_TEST_CASE(by_channel) {
  // Two records with two channels of 1 x 2 pixels each.
  const made x{npy_type::f32, {2, 2, 1, 2}, std::vector<float>{1, 2, 30, 40, 5, 6, 70, 80}};
  const auto data = records_of(x, two_classes);
  const auto found = features_of(*normalized(data, {{1, 20}, {2, 10}}), {0, 1});
  BOOST_TEST(found == (std::vector<float>{0, 0.5F, 1, 2, 2, 2.5F, 5, 6}));
  BOOST_TEST(contains(error_of([&] { normalized(data, {{1, 2, 3}, {1, 1, 1}}); }), "do not fit"));
  BOOST_TEST(contains(error_of([&] { normalized(data, {{1}, {}}); }), "do not fit"));
}

BOOST_AUTO_TEST_SUITE_END()
