#include "kernels/data/subset.hpp"

#include "kernels/data/arrays.hpp"
#include "kernels/data/images.hpp"
#include "kernels/data/normalized.hpp"
#include "tests/support/input_errors.hpp"

#include <numeric>

BOOST_AUTO_TEST_SUITE(subset)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three records with one feature and two targets: 1 with 10 and 100, 2 with 20 and 200, 3 with 30
/// and 300.
std::shared_ptr<const dataset> numbers() {
  const std::vector<double> targets{10, 100, 20, 200, 30, 300};
  return std::make_shared<const array_dataset>(shape{1}, std::vector<float>{1, 2, 3},
                                               stored_labels::as_targets(targets, 2, "numbers"));
}

} // namespace

BOOST_AUTO_TEST_CASE(renumbers_classes) {
  std::vector<std::uint8_t> pixels(1000);
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  const std::vector<std::uint8_t> labels = pixels;
  const auto whole = std::make_shared<const image_dataset>(pixels, labels, 1, 1);
  const auto part = troupe::subset(whole, 300, 700);
  BOOST_TEST(part->size() == 700u);
  BOOST_TEST(part->record().label_width == whole->record().label_width);
  // Reads more records than the fixed buffer holds.
  std::vector<std::uint64_t> records(700);
  std::iota(records.begin(), records.end(), 0U);
  std::vector<float> features(700);
  std::vector<std::int32_t> classes(700);
  part->read(records, std::span<float>{features}, {classes, {}});
  for (std::size_t i = 0; i < 700; ++i) {
    BOOST_REQUIRE(classes[i] == labels[300 + i]);
    BOOST_REQUIRE(features[i] == static_cast<float>(pixels[300 + i]) / 255.0F);
  }
}

BOOST_AUTO_TEST_CASE(renumbers_targets) {
  const auto whole = numbers();
  const auto part = troupe::subset(whole, 1, 2);
  const std::vector<std::uint64_t> records{1, 0};
  std::vector<float> features(2);
  std::vector<float> targets(4);
  part->read(records, std::span<float>{features}, {{}, targets});
  BOOST_TEST(features == (std::vector<float>{3, 2}));
  BOOST_TEST(targets == (std::vector<float>{30, 300, 20, 200}));
}

BOOST_AUTO_TEST_CASE(must_lie_within) {
  const auto whole = numbers();
  BOOST_TEST(troupe::subset(whole, 3, 0)->size() == 0u);
  BOOST_TEST(
    contains(error_of([&] { troupe::subset(whole, 1, 3); }), "do not lie within the 3 records"));
  BOOST_TEST(
    contains(error_of([&] { troupe::subset(whole, 1, ~std::uint64_t{0}); }), "do not lie"));
  BOOST_TEST(contains(error_of([&] { troupe::subset(whole, 4, 0); }), "do not lie"));
  BOOST_TEST(contains(error_of([&] {
                        troupe::subset(whole, {0, 3});
                      }),
                      "record 3 does not lie within the 3 records"));
}

// A part of a data set says which number each record has in the whole data set, even if the part is
// taken from another part.
BOOST_AUTO_TEST_CASE(listed_records) {
  const auto whole = numbers();
  const auto part = troupe::subset(whole, {2, 0, 2});
  BOOST_TEST(part->size() == 3u);
  const std::vector<std::uint64_t> records{1, 2};
  std::vector<float> features(2);
  std::vector<float> targets(4);
  part->read(records, std::span<float>{features}, {{}, targets});
  BOOST_TEST(features == (std::vector<float>{1, 3}));
  BOOST_TEST(whole->origin(1) == 1u);
  BOOST_TEST(part->origin(0) == 2u);
  BOOST_TEST(troupe::subset(part, 1, 2)->origin(0) == 0u);
  BOOST_TEST(normalized(troupe::subset(whole, 1, 2), {{0}, {1}})->origin(1) == 2u);
}

BOOST_AUTO_TEST_SUITE_END()
