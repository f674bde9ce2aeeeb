#include "kernels/data/digits.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <zlib.h>

BOOST_AUTO_TEST_SUITE(digits)

using namespace troupe;

namespace {

unsigned long checksum(std::span<const std::uint8_t> bytes) {
  return ::crc32(0, bytes.data(), static_cast<unsigned>(bytes.size()));
}

} // namespace

// The bytes are the same on every machine, with every compiler and build type.
BOOST_AUTO_TEST_CASE(fixed_bytes) {
  const auto data = generate_digits(1000, 1);
  BOOST_TEST(checksum(data->pixels()) == 470335115u);
  BOOST_TEST(checksum(data->classes()) == 4072330490u);
}

BOOST_AUTO_TEST_CASE(a_prefix_of_a_larger_set) {
  const auto small = generate_digits(10, 3);
  const auto large = generate_digits(100, 3);
  BOOST_TEST(std::ranges::equal(small->pixels(), large->pixels().first(10 * 784)));
  const auto other = generate_digits(10, 4);
  BOOST_TEST(!std::ranges::equal(small->pixels(), other->pixels()));
  BOOST_TEST(generate_digits(0, 1)->size() == 0u);
}

BOOST_AUTO_TEST_CASE(classes_are_balanced_and_images_have_ink) {
  const auto data = generate_digits(5000, 1);
  BOOST_TEST(data->record().feature_width() == 784u);
  BOOST_TEST(data->record().label_width == 10u);
  std::vector<int> count(10);
  for (const auto label : data->classes())
    ++count[label];
  BOOST_TEST(*std::ranges::min_element(count) > 420);
  BOOST_TEST(*std::ranges::max_element(count) < 580);
  for (std::size_t i = 0; i < data->size(); ++i) {
    const auto image = data->pixels().subspan(i * 784, 784);
    const auto bright = std::ranges::count_if(image, [](int p) { return p > 100; });
    BOOST_REQUIRE_MESSAGE(bright >= 10 && bright < 392, "digit " << i << ": " << bright);
  }
}

// The task must be neither trivial nor impossible. The nearest of the ten mean images is right for
// about 60 % (82 % for MNIST, whose digits are centred). An MLP 784-128-10 reaches about 97 %.
BOOST_AUTO_TEST_CASE(about_as_hard_as_mnist) {
  const auto data = generate_digits(4000, 1);
  std::vector<double> mean(7840);
  std::vector<double> count(10);
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::size_t label = data->classes()[i];
    ++count[label];
    for (std::size_t j = 0; j < 784; ++j)
      mean[label * 784 + j] += data->pixels()[i * 784 + j];
  }
  int right = 0;
  for (std::size_t i = 3000; i < 4000; ++i) {
    std::vector<double> distance(10);
    for (std::size_t k = 0; k < 10; ++k)
      for (std::size_t j = 0; j < 784; ++j) {
        const double d = data->pixels()[i * 784 + j] - mean[k * 784 + j] / count[k];
        distance[k] += d * d;
      }
    right += std::ranges::min_element(distance) - distance.begin() == data->classes()[i] ? 1 : 0;
  }
  BOOST_TEST(right > 500);
  BOOST_TEST(right < 800);
}

BOOST_AUTO_TEST_SUITE_END()
