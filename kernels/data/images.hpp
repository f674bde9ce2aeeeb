#pragma once

#include "kernels/data/dataset.hpp"
#include "kernels/formats/idx.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// Grey images with class labels. They are stored as bytes and read as floats x / 255 in [0, 1].
class image_dataset final : public dataset {
public:
  /// Takes ownership of pixels and labels.
  /// @param pixels (records, height, width), row-major
  /// @param labels (records)
  /// @param classes number of classes. 0 means the largest label + 1 (at least 1).
  /// @throws input_error if the sizes do not fit, or if a label is not below `classes` (names the
  /// record).
  image_dataset(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels,
                std::size_t height, std::size_t width, std::size_t classes = 0);

  std::uint64_t size() const noexcept override { return labels_.size(); }
  /// The features of a record have the shape (1, height, width).
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override { return pixels_.size() + labels_.size(); }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override;

  /// The pixels of all records: (size(), height, width), row-major.
  std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }

  /// The classes of all records: (size()).
  std::span<const std::uint8_t> classes() const noexcept { return labels_; }

private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  record_shape record_;
};

/// Makes an image data set from two IDX files in memory (decompressed): images (records, rows,
/// columns), labels (records).
/// @param classes like in image_dataset.
/// @throws input_error that names the file, in the same cases as parse_idx_u8. Also for different
/// numbers of images and labels, no records, images without pixels, or a label outside the classes
/// (with its record).
std::shared_ptr<const image_dataset> idx_images(std::span<const std::byte> images,
                                                std::string_view images_name,
                                                std::span<const std::byte> labels,
                                                std::string_view labels_name,
                                                std::size_t classes = 0);

} // namespace troupe
