#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// A decoded picture.
struct picture {
  std::size_t height = 0;
  std::size_t width = 0;
  /// 1: grey; 3: red, green, blue.
  std::size_t channels = 0;
  /// (height, width, channels), row-major.
  std::vector<std::uint8_t> pixels;
};

/// The largest number of pixels that decode_picture accepts: 2^26. Without a limit, a small file
/// could require gigabytes.
inline constexpr std::size_t most_pixels = std::size_t{1} << 26;

/// Decodes a PNG or JPEG file (libpng, libjpeg-turbo), recognized by its first bytes. Transparent
/// pixels are shown on black. 16 bits per channel are reduced to 8.
/// @param channels 1 or 3. For 1, colours are converted to grey by their luminance. For 3, a grey
/// picture gets three equal channels.
/// @param name the name of the input in errors.
/// @throws input_error with `name`, if the file is neither PNG nor JPEG, is damaged, or has more
/// than most_pixels.
picture decode_picture(std::span<const std::byte> file, std::size_t channels,
                       std::string_view name);

/// Scales a picture with a triangle filter, as PIL's BILINEAR does. To enlarge a picture, the
/// filter interpolates bilinearly. To reduce it, each new pixel becomes a weighted mean of all old
/// pixels near it. All sizes must be at least 1.
picture scaled(const picture& x, std::size_t height, std::size_t width);

} // namespace troupe
