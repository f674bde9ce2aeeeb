#include "kernels/data/images.hpp"

#include "tests/support/input_errors.hpp"

#include <array>

BOOST_AUTO_TEST_SUITE(images)

using namespace troupe;
using namespace troupe::test;

namespace {

using shape_list = std::vector<std::uint64_t>;

std::vector<std::byte> idx(const shape_list& shape, const std::vector<std::uint8_t>& values) {
  return write_idx_u8(shape, values);
}

std::string build_error(const std::vector<std::byte>& images, const std::vector<std::byte>& labels,
                        std::size_t classes = 0) {
  return error_of([&] { idx_images(images, "images.gz", labels, "labels.gz", classes); });
}

} // namespace

BOOST_AUTO_TEST_CASE(gathers_rows) {
  const auto data =
    idx_images(idx({3, 1, 2}, {0, 255, 51, 102, 1, 2}), "i", idx({3}, {4, 0, 2}), "l");
  BOOST_TEST(data->size() == 3u);
  BOOST_TEST(data->record().feature_width() == 2u);
  BOOST_TEST((data->record().labels == label_kind::classes));
  BOOST_TEST(data->record().label_width == 5u);
  const std::array<std::uint64_t, 4> records{2, 0, 2, 1};
  std::array<float, 8> features{};
  std::array<std::int32_t, 4> labels{};
  data->read(records, std::span<float>{features}, {labels, {}});
  const std::array<float, 8> expected{1 / 255.0F, 2 / 255.0F, 0,   1,
                                      1 / 255.0F, 2 / 255.0F, .2F, .4F};
  BOOST_TEST(features == expected, boost::test_tools::per_element());
  BOOST_TEST(labels == (std::array<std::int32_t, 4>{2, 4, 2, 0}), boost::test_tools::per_element());
  data->read({}, {}, {});
}

BOOST_AUTO_TEST_CASE(classes_may_be_more_than_the_labels_say) {
  const auto data = idx_images(idx({1, 1, 1}, {9}), "i", idx({1}, {3}), "l", 10);
  BOOST_TEST(data->record().label_width == 10u);
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto images = idx({2, 1, 1}, {1, 2});
  const auto labels = idx({2}, {0, 7});
  BOOST_TEST(build_error(images, labels) == "(no error)");
  BOOST_TEST(contains(build_error(images, idx({3}, {0, 1, 2})),
                      "images.gz has 2 images, but labels.gz has 3 labels"));
  BOOST_TEST(contains(build_error(images, labels, 7),
                      "labels.gz: record 1 has label 7, outside the classes 0 to 6"));
  BOOST_TEST(contains(build_error(labels, images), "images.gz: expected 3 dimensions"));
  BOOST_TEST(contains(build_error(images, images), "labels.gz: expected 1 dimension"));
  BOOST_TEST(contains(build_error(idx({0, 1, 1}, {}), idx({0}, {})), "no images"));
  BOOST_TEST(contains(build_error(idx({2, 0, 1}, {}), labels), "without pixels"));
  BOOST_TEST(contains(error_of([] {
                        image_dataset({1, 2, 3}, {0, 1}, 1, 2);
                      }),
                      "3 pixels are not 2 images of 2"));
  BOOST_TEST(contains(error_of([] {
                        image_dataset({1, 2}, {0, 3}, 1, 1, 3);
                      }),
                      "record 1 has label 3"));
}

BOOST_AUTO_TEST_SUITE_END()
