#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <png.h>
#include <turbojpeg.h>

namespace troupe::test {

/// The bytes of a PNG file.
/// @param pixels (height, width, channels), row-major
/// @param format a format of libpng, such as PNG_FORMAT_RGB
inline std::vector<std::byte> write_png(std::size_t height, std::size_t width, unsigned format,
                                        const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::vector<std::byte> result(size);
  if (png_image_write_to_memory(&image, result.data(), &size, 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(image.message);
  return result;
}

/// The bytes of a JPEG file of the best quality.
/// @param pixels (height, width, 3), row-major
inline std::vector<std::byte> write_jpeg(std::size_t height, std::size_t width,
                                         const std::vector<std::uint8_t>& pixels) {
  const std::unique_ptr<void, int (*)(tjhandle)> encoder{tjInitCompress(), tjDestroy};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  if (tjCompress2(encoder.get(), pixels.data(), static_cast<int>(width), 0,
                  static_cast<int>(height), TJPF_RGB, &bytes, &size, TJSAMP_444, 100, 0)
      != 0)
    throw std::runtime_error(tjGetErrorStr2(encoder.get()));
  const auto* first = reinterpret_cast<const std::byte*>(bytes);
  std::vector<std::byte> result(first, first + size);
  tjFree(bytes);
  return result;
}

} // namespace troupe::test
