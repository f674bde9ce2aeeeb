#include "kernels/formats/picture.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/parsing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <png.h>
#include <turbojpeg.h>

namespace troupe {

namespace {

bool begins_with(std::span<const std::byte> file, std::initializer_list<unsigned> bytes) {
  return file.size() >= bytes.size()
    && std::ranges::equal(file.first(bytes.size()), bytes, [](std::byte a, unsigned b) {
           return std::to_integer<unsigned>(a) == b;
         });
}

picture allocate(std::size_t height, std::size_t width, std::size_t channels,
                 std::string_view name) {
  if (height == 0 || width == 0 || height > most_pixels / width)
    reject(name,
           "a picture of " + std::to_string(width) + " x " + std::to_string(height)
             + " pixels; expected at least one and at most " + std::to_string(most_pixels));
  return {height, width, channels, std::vector<std::uint8_t>(height * width * channels)};
}

picture decode_png(std::span<const std::byte> file, std::size_t channels, std::string_view name) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> guard{&image, png_image_free};
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0)
    reject(name, std::string{"not a valid PNG file: "} + image.message);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  auto result = allocate(image.height, image.width, channels, name);
  const png_color black{};
  if (png_image_finish_read(&image, &black, result.pixels.data(), 0, nullptr) == 0)
    reject(name, std::string{"not a valid PNG file: "} + image.message);
  return result;
}

picture decode_jpeg(std::span<const std::byte> file, std::size_t channels, std::string_view name) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder{tjInitDecompress(), tjDestroy};
  if (!decoder)
    reject(name, "cannot decode JPEG: out of memory");
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  const auto refuse = [&] {
    reject(name, std::string{"not a valid JPEG file: "} + tjGetErrorStr2(decoder.get()));
  };
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder.get(), bytes, file.size(), &width, &height, &subsampling,
                          &colours)
      != 0)
    refuse();
  auto result =
    allocate(static_cast<std::size_t>(height), static_cast<std::size_t>(width), channels, name);
  // Files with a few extra bytes are common. All other warnings mean that pixels are missing.
  if (tjDecompress2(decoder.get(), bytes, file.size(), result.pixels.data(), width, 0, height,
                    channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT)
        != 0
      && (tjGetErrorCode(decoder.get()) != TJERR_WARNING
          || std::string_view{tjGetErrorStr2(decoder.get())}.find("extraneous bytes")
            == std::string_view::npos))
    refuse();
  return result;
}

/// The computation of one new pixel in one direction: a weighted mean of neighbouring old pixels.
/// `first` is the number of the first old pixel. There is one weight for each old pixel.
struct filter_taps {
  std::size_t first = 0;
  std::vector<float> weights; ///< their sum is 1
};

std::vector<filter_taps> taps_of(std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(scale, 1.0);
  std::vector<filter_taps> result(to);
  for (std::size_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto begin = static_cast<std::size_t>(std::max(center - radius + 0.5, 0.0));
    const auto end =
      static_cast<std::size_t>(std::min(center + radius + 0.5, static_cast<double>(from)));
    std::vector<double> weights;
    double sum = 0;
    for (auto j = begin; j < end; ++j) {
      const double distance = std::abs(static_cast<double>(j) + 0.5 - center) / radius;
      weights.push_back(std::max(1 - distance, 0.0));
      sum += weights.back();
    }
    result[i].first = begin;
    for (const double x : weights)
      result[i].weights.push_back(static_cast<float>(x / sum));
  }
  return result;
}

/// How pixels are arranged in memory for filtering in one direction, horizontal or vertical. There
/// are `lines` lines of pixels in this direction. Old pixel p of line l is at l * line_step + p *
/// step. New pixel p is at l * new_line_step + p * new_step.
struct direction {
  std::size_t lines;
  std::size_t line_step;
  std::size_t step;
  std::size_t new_line_step;
  std::size_t new_step;
};

void filter(const std::vector<std::uint8_t>& from, const std::vector<filter_taps>& taps,
            const direction& how, std::size_t channels, std::vector<std::uint8_t>& to) {
  for (std::size_t line = 0; line < how.lines; ++line)
    for (std::size_t i = 0; i < taps.size(); ++i)
      for (std::size_t c = 0; c < channels; ++c) {
        float sum = 0.5F;
        const auto* old = from.data() + line * how.line_step + taps[i].first * how.step + c;
        for (std::size_t k = 0; k < taps[i].weights.size(); ++k)
          sum += taps[i].weights[k] * static_cast<float>(old[k * how.step]);
        to[line * how.new_line_step + i * how.new_step + c] =
          static_cast<std::uint8_t>(std::clamp(sum, 0.0F, 255.0F));
      }
}

} // namespace

picture decode_picture(std::span<const std::byte> file, std::size_t channels,
                       std::string_view name) {
  if (begins_with(file, {0x89, 'P', 'N', 'G'}))
    return decode_png(file, channels, name);
  if (begins_with(file, {0xFF, 0xD8, 0xFF}))
    return decode_jpeg(file, channels, name);
  reject(name, "neither a PNG nor a JPEG file");
}

picture scaled(const picture& x, std::size_t height, std::size_t width) {
  if (x.height == height && x.width == width)
    return x;
  const auto c = x.channels;
  picture wide{x.height, width, c, std::vector<std::uint8_t>(x.height * width * c)};
  filter(x.pixels, taps_of(x.width, width), {x.height, x.width * c, c, width * c, c}, c,
         wide.pixels);
  picture result{height, width, c, std::vector<std::uint8_t>(height * width * c)};
  filter(wide.pixels, taps_of(x.height, height), {width, c, width * c, c, width * c}, c,
         result.pixels);
  return result;
}

} // namespace troupe
