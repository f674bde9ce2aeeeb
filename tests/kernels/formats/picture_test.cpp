#include "kernels/formats/picture.hpp"

#include "tests/support/input_errors.hpp"
#include "tests/support/pictures.hpp"

#include <cmath>
#include <cstdlib>

BOOST_AUTO_TEST_SUITE(pictures)

using namespace troupe;
using namespace troupe::test;

namespace {

// Random pixels. For them, PIL 13 gave the following results with BILINEAR and convert("L").
const picture original{5, 4, 3, {207, 21,  45,  60,  46,  205, 222, 149, 10,  24,  85,  110,
                                 159, 122, 67,  40,  177, 188, 8,   29,  115, 100, 227, 132,
                                 107, 110, 170, 150, 44,  188, 193, 244, 201, 72,  81,  166,
                                 166, 178, 222, 74,  240, 0,   19,  249, 241, 76,  35,  80,
                                 11,  228, 169, 149, 62,  120, 48,  197, 121, 7,   65,  180}};
const std::vector<std::uint8_t> smaller{136, 95,  118, 96, 117, 146, 83, 136, 123,
                                        106, 164, 157, 91, 179, 139, 58, 111, 150};
const std::vector<std::uint8_t> first_row_of_larger{
  207, 21, 45, 154, 30, 102, 70, 44, 194, 141, 98, 108, 208, 144, 17, 95, 108, 74, 24, 85, 110};
const std::vector<std::uint8_t> grey{79,  68, 155, 70,  127, 137, 33,  178, 116, 92,
                                     224, 88, 179, 163, 179, 52,  156, 95,  144, 61};

/// Compares pixels, which may differ by one level because of rounding.
void check_near(const std::vector<std::uint8_t>& x, const std::vector<std::uint8_t>& expected) {
  BOOST_TEST_REQUIRE(x.size() == expected.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    BOOST_TEST(std::abs(x[i] - expected[i]) <= 1,
               "pixel " << i << ": " << int{x[i]} << ", expected " << int{expected[i]});
}

} // namespace

BOOST_AUTO_TEST_CASE(sizes_like_those_of_pil) {
  check_near(scaled(original, 2, 3).pixels, smaller);
  auto larger = scaled(original, 6, 7).pixels;
  BOOST_TEST(larger.size() == 6u * 7u * 3u);
  larger.resize(first_row_of_larger.size());
  check_near(larger, first_row_of_larger);
  BOOST_TEST(scaled(original, 5, 4).pixels == original.pixels);
  const picture even{3, 5, 1, std::vector<std::uint8_t>(15, 200)};
  BOOST_TEST(scaled(even, 7, 2).pixels == std::vector<std::uint8_t>(14, 200));
}

BOOST_AUTO_TEST_CASE(png_files) {
  const auto colours = write_png(5, 4, PNG_FORMAT_RGB, original.pixels);
  const auto x = decode_picture(colours, 3, "x.png");
  BOOST_TEST((x.height == 5 && x.width == 4 && x.channels == 3));
  BOOST_TEST(x.pixels == original.pixels);
  const auto as_grey = write_png(5, 4, PNG_FORMAT_GRAY, grey);
  BOOST_TEST(decode_picture(as_grey, 1, "x.png").pixels == grey);
  std::vector<std::uint8_t> three;
  for (const auto value : grey)
    three.insert(three.end(), 3, value);
  BOOST_TEST(decode_picture(as_grey, 3, "x.png").pixels == three);
  // A transparent pixel is decoded as black.
  const auto clear = write_png(1, 2, PNG_FORMAT_RGBA, {9, 8, 7, 255, 9, 8, 7, 0});
  BOOST_TEST(decode_picture(clear, 3, "x.png").pixels
             == (std::vector<std::uint8_t>{9, 8, 7, 0, 0, 0}));
}

BOOST_AUTO_TEST_CASE(jpeg_files) {
  std::vector<std::uint8_t> ramp;
  for (int i = 0; i < 16 * 16; ++i)
    ramp.insert(ramp.end(), 3, static_cast<std::uint8_t>(40 + i % 16 * 10));
  const auto file = write_jpeg(16, 16, ramp);
  const auto x = decode_picture(file, 3, "x.jpg");
  BOOST_TEST((x.height == 16 && x.width == 16));
  BOOST_TEST_REQUIRE(x.pixels.size() == ramp.size());
  for (std::size_t i = 0; i < ramp.size(); ++i)
    BOOST_TEST(std::abs(x.pixels[i] - ramp[i]) <= 3);
  BOOST_TEST(decode_picture(file, 1, "x.jpg").pixels.size() == 256u);
}

BOOST_AUTO_TEST_CASE(refused) {
  const auto error = [](std::vector<std::byte> file) {
    return error_of([&] { decode_picture(file, 3, "x"); });
  };
  BOOST_TEST(contains(error({}), "x: neither a PNG nor a JPEG file"));
  auto png = write_png(5, 4, PNG_FORMAT_RGB, original.pixels);
  for (const std::size_t size : {8, 20, 40})
    BOOST_TEST(contains(error({png.begin(), png.begin() + size}), "x: not a valid PNG file: "));
  png.resize(png.size() - 20);
  BOOST_TEST(contains(error(png), "x: not a valid PNG file: "));
  auto jpeg = write_jpeg(5, 4, original.pixels);
  jpeg.resize(jpeg.size() - 60);
  BOOST_TEST(contains(error(jpeg), "x: not a valid JPEG file: "));
  // A header that claims more than 2^30 x 2^30 pixels is refused.
  auto huge = write_png(5, 4, PNG_FORMAT_RGB, original.pixels);
  for (const std::size_t at : {16, 20})
    huge[at] = std::byte{0x40};
  BOOST_TEST(contains(error(huge), "x: "));
}

// Damaged files give an error or a picture, but no other failure.
BOOST_AUTO_TEST_CASE(damaged) {
  const auto decode = [](std::span<const std::byte> file) { decode_picture(file, 3, "x"); };
  survive_hostile_variants(write_png(5, 4, PNG_FORMAT_RGB, original.pixels), decode);
  survive_hostile_variants(write_jpeg(5, 4, original.pixels), decode);
}

BOOST_AUTO_TEST_SUITE_END()
