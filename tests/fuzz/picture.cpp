// Fuzz target: PNG and JPEG files. They are decoded and scaled to the size of a record.

#include "kernels/formats/picture.hpp"
#include "tests/fuzz/target.hpp"

#include <string_view>

using namespace troupe;

namespace {

constexpr std::size_t accepted_pixels = 1 << 18;

/// The number in the first `bytes` bytes, with the highest byte first.
std::size_t number(std::string_view x, std::size_t bytes) {
  std::size_t result = 0;
  for (const char c : x.substr(0, bytes))
    result = result << 8 | static_cast<unsigned char>(c);
  return result;
}

/// True if the header of a picture says that it is large. Such a picture needs more memory than the
/// fuzzer allows.
bool is_large(std::string_view file) {
  constexpr std::size_t png_size = 16;
  const auto large = [](std::size_t a, std::size_t b) { return a != 0 && b > accepted_pixels / a; };
  if (file.starts_with("\x89PNG"))
    return file.size() < png_size + 8
      || large(number(file.substr(png_size), 4), number(file.substr(png_size + 4), 4));
  // A JPEG file has its size after a marker SOF0 to SOF15, which may be at any position.
  for (std::size_t i = 0; i + 9 <= file.size(); ++i)
    if (number(file.substr(i), 2) >> 4 == 0xffc
        && large(number(file.substr(i + 5), 2), number(file.substr(i + 7), 2)))
      return true;
  return false;
}

} // namespace

TROUPE_FUZZ_TARGET(picture, input) {
  if (is_large(fuzz::as_text(input)))
    return;
  for (const std::size_t channels : {1, 3}) {
    const auto x = decode_picture(input, channels, "x.png");
    fuzz::require(x.channels == channels, "a picture has the requested channels");
    fuzz::require(x.height > 0 && x.width > 0 && x.height * x.width <= most_pixels,
                  "a picture has at least one pixel, and not too many");
    fuzz::require(x.pixels.size() == x.height * x.width * x.channels,
                  "there is one value per pixel and channel");
    const auto y = scaled(x, 8, 8);
    fuzz::require(y.height == 8 && y.width == 8 && y.pixels.size() == 64 * channels,
                  "a scaled picture has the requested size");
  }
}
