#include "actors/model/data_fingerprint.hpp"

#include "kernels/data/arrays.hpp"
#include "kernels/data/images.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/sparse.hpp"
#include "kernels/data/subset.hpp"
#include "kernels/data/text.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(data_fingerprint)

namespace {

constexpr std::size_t records = 1000;

std::vector<std::uint8_t> some_labels() {
  std::vector<std::uint8_t> result(records);
  for (std::size_t i = 0; i < records; ++i)
    result[i] = static_cast<std::uint8_t>(i * i % 10);
  return result;
}

std::vector<std::uint8_t> some_pixels() {
  std::vector<std::uint8_t> result(records * 4);
  std::iota(result.begin(), result.end(), std::uint8_t{0});
  return result;
}

std::shared_ptr<const dataset> images(std::vector<std::uint8_t> pixels = some_pixels(),
                                      std::vector<std::uint8_t> labels = some_labels()) {
  return std::make_shared<image_dataset>(std::move(pixels), std::move(labels), 2, 2, 10);
}

/// A data set in which each record has the label of the previous record.
std::shared_ptr<const dataset> shifted() {
  auto labels = some_labels();
  std::rotate(labels.begin(), labels.end() - 1, labels.end());
  return images(some_pixels(), labels);
}

proto::DataFingerprint of(std::shared_ptr<const dataset> train,
                          std::shared_ptr<const dataset> validation = nullptr,
                          std::shared_ptr<const dataset> test = nullptr) {
  job_data data;
  data.train = std::move(train);
  data.validation = std::move(validation);
  data.test = std::move(test);
  return fingerprint_of(data);
}

std::string differ(const proto::DataFingerprint& here, const proto::DataFingerprint& there) {
  return difference(here, there, "those there");
}

/// A data set that a program defines. It delivers features and labels only together.
class own_dataset final : public dataset {
public:
  explicit own_dataset(std::shared_ptr<const dataset> whole) : whole_(std::move(whole)) {}

  std::uint64_t size() const noexcept override { return whole_->size(); }
  const record_shape& record() const noexcept override { return whole_->record(); }
  void read(std::span<const std::uint64_t> which, feature_batch features,
            label_batch labels) const override {
    whole_->read(which, features, labels);
  }

private:
  std::shared_ptr<const dataset> whole_;
};

std::shared_ptr<const dataset> sparse(float last_value, double last_label) {
  libsvm_rows rows;
  rows.row_starts = {0, 2, 2, 3};
  rows.columns = {0, 2, 1};
  rows.values = {1, 2, last_value};
  rows.width = 3;
  const std::vector<double> labels{0, 1, last_label};
  return std::make_shared<sparse_dataset>(
    std::move(rows), 3, stored_labels::as_classes(labels, class_numbers::from_zero, 2, "labels"),
    "rows");
}

std::shared_ptr<const dataset> text(std::int32_t last) {
  std::vector<std::int32_t> tokens(100, 1);
  tokens[98] = last; // the label at the last position of the last record
  return std::make_shared<text_dataset>(std::move(tokens), 5, 7, 7);
}

std::shared_ptr<const dataset> targets(float last) {
  std::vector<double> labels(records, 0.5);
  labels[617] = static_cast<double>(last);
  return std::make_shared<array_dataset>(shape{2}, std::vector<float>(records * 2, 1.0F),
                                         stored_labels::as_targets(labels, 1, "labels"));
}

} // namespace

BOOST_AUTO_TEST_CASE(the_same_data_do_not_differ) {
  BOOST_TEST(differ(of(images(), images(), shifted()), of(images(), images(), shifted())) == "");
  BOOST_TEST(differ(of(sparse(3, 1)), of(sparse(3, 1))) == "");
  BOOST_TEST(differ(of(text(1)), of(text(1))) == "");
  BOOST_TEST(differ(of(targets(1)), of(targets(1))) == "");
  // The fingerprint depends on the records, not on how they are stored.
  const auto part = subset(images(), 100, 800);
  BOOST_TEST(differ(of(part), of(std::make_shared<own_dataset>(part))) == "");
}

BOOST_AUTO_TEST_CASE(labels_that_are_shifted_are_seen) {
  const std::string expected =
    "the training data differ from those there: other labels (1000 records here, 1000 there)";
  BOOST_TEST(differ(of(shifted()), of(images())) == expected);
  BOOST_TEST(differ(of(std::make_shared<own_dataset>(shifted())), of(images())) == expected);
  BOOST_TEST(contains(differ(of(subset(shifted(), 7, 500)), of(subset(images(), 7, 500))),
                      "other labels (500 records here, 500 there)"));
  const feature_scaling scaling{{0.5}, {2.0}};
  BOOST_TEST(contains(differ(of(normalized(shifted(), scaling)), of(normalized(images(), scaling))),
                      "other labels"));
}

BOOST_AUTO_TEST_CASE(any_one_label_is_seen) {
  for (const std::size_t which : {std::size_t{0}, std::size_t{333}, records - 1}) {
    auto labels = some_labels();
    labels[which] = static_cast<std::uint8_t>((labels[which] + 1) % 10);
    BOOST_TEST(contains(differ(of(images(some_pixels(), labels)), of(images())), "other labels"));
  }
  BOOST_TEST(contains(differ(of(targets(1)), of(targets(2))), "other labels"));
  BOOST_TEST(contains(differ(of(sparse(3, 0)), of(sparse(3, 1))), "other labels"));
  BOOST_TEST(contains(differ(of(text(1)), of(text(2))), "other labels"));
}

BOOST_AUTO_TEST_CASE(other_features_are_seen) {
  for (const std::size_t which : {std::size_t{0}, records * 4 - 1}) {
    auto pixels = some_pixels();
    ++pixels[which];
    BOOST_TEST(contains(differ(of(images(pixels)), of(images())), "other features"));
  }
  auto pixels = some_pixels();
  std::rotate(pixels.begin(), pixels.end() - 4, pixels.end());
  BOOST_TEST(contains(differ(of(images(pixels)), of(images())), "other features"));
  BOOST_TEST(contains(differ(of(sparse(4, 1)), of(sparse(3, 1))), "other features"));
}

BOOST_AUTO_TEST_CASE(the_part_is_named) {
  const auto expected = of(images(), images(), images());
  BOOST_TEST(differ(of(images(), images(), images()), expected) == "");
  BOOST_TEST(contains(differ(of(images(), shifted(), images()), expected), "the validation data"));
  BOOST_TEST(contains(differ(of(images(), images(), shifted()), expected), "the test data"));
  BOOST_TEST(
    contains(differ(of(images(), images(), subset(images(), 0, 999)), expected),
             "the test data differ from those there: another number of records (999 records "
             "here, 1000 there)"));
  // A worker may have no test data. Then only the training data is compared.
  BOOST_TEST(differ(of(images()), expected) == "");
}

BOOST_AUTO_TEST_CASE(data_that_are_not_the_coordinators_are_refused) {
  job_data data;
  data.train = shifted();
  const auto said = [&](const std::optional<proto::DataFingerprint>& coordinators) {
    return error_of([&] { require_same_data(data, coordinators); });
  };
  BOOST_TEST(said(std::nullopt) == "(no error)");
  BOOST_TEST(said(of(shifted())) == "(no error)");
  BOOST_TEST(said(of(images()))
             == "the training data differ from those of coordinator/0: other labels (1000 records "
                "here, 1000 there); give all tasks the same files");
  // A known fingerprint is not computed again.
  data.fingerprint = of(images());
  BOOST_TEST(said(of(images())) == "(no error)");
}

BOOST_AUTO_TEST_CASE(there_and_back_as_text) {
  const auto x = of(images(), nullptr, shifted());
  BOOST_TEST(differ(parse_fingerprint(to_text(x)).value(), x) == "");
  BOOST_TEST(to_text(parse_fingerprint(to_text(x)).value()) == to_text(x));
  BOOST_TEST(to_text(x).find('\n') == std::string::npos);
  BOOST_TEST(!parse_fingerprint("train {").has_value());
}

BOOST_AUTO_TEST_SUITE_END()
