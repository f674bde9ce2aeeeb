#include "kernels/data/images.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::vector<std::uint8_t> copy_of(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

/// The position of the first label that is not below `classes`. If there is none, the number of
/// labels.
std::size_t first_outside(std::span<const std::uint8_t> labels, std::size_t classes) {
  const auto outside = [classes](std::uint8_t label) { return label >= classes; };
  return static_cast<std::size_t>(std::ranges::find_if(labels, outside) - labels.begin());
}

std::string label_problem(std::span<const std::uint8_t> labels, std::size_t record,
                          std::size_t classes) {
  return "record " + std::to_string(record) + " has label " + std::to_string(labels[record])
    + ", outside the classes 0 to " + std::to_string(classes - 1)
    + (labels[record] == classes && std::ranges::find(labels, 0) == labels.end()
         ? "; no record has label 0: do the labels start at 1?"
         : "");
}

} // namespace

image_dataset::image_dataset(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels,
                             std::size_t height, std::size_t width, std::size_t classes)
  : pixels_(std::move(pixels)), labels_(std::move(labels)) {
  record_.dims = {1, static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
  const std::size_t size = record_.feature_width();
  const bool fits = size == 0
    ? pixels_.empty()
    : pixels_.size() % size == 0 && pixels_.size() / size == labels_.size();
  if (!fits)
    throw input_error("images: " + std::to_string(pixels_.size()) + " pixels are not "
                      + std::to_string(labels_.size()) + " images of " + std::to_string(size));
  record_.label_width = classes;
  if (classes == 0)
    record_.label_width = labels_.empty() ? 1 : std::size_t{std::ranges::max(labels_)} + 1;
  if (const auto bad = first_outside(labels_, record_.label_width); bad < labels_.size())
    throw input_error("images: " + label_problem(labels_, bad, record_.label_width));
}

void image_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                         label_batch labels) const {
  const std::size_t size = record_.feature_width();
  float* out = features.numbers.data();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::uint8_t* row = pixels_.data() + records[i] * size;
    for (std::size_t j = 0; j < size; ++j)
      out[j] = static_cast<float>(row[j]) / 255.0F;
    out += size;
  }
  read_labels(records, labels);
}

bool image_dataset::read_labels(std::span<const std::uint64_t> records, label_batch labels) const {
  for (std::size_t i = 0; i < records.size(); ++i)
    labels.classes[i] = labels_[records[i]];
  return true;
}

std::shared_ptr<const image_dataset> idx_images(std::span<const std::byte> images,
                                                std::string_view images_name,
                                                std::span<const std::byte> labels,
                                                std::string_view labels_name, std::size_t classes) {
  const auto pixels = parse_idx_u8(images, 3, images_name);
  const auto classes_of = parse_idx_u8(labels, 1, labels_name);
  if (pixels.shape[0] != classes_of.shape[0])
    throw input_error(std::string{images_name} + " has " + std::to_string(pixels.shape[0])
                      + " images, but " + std::string{labels_name} + " has "
                      + std::to_string(classes_of.shape[0])
                      + " labels; they should belong together");
  if (pixels.shape[0] == 0 || pixels.values.empty())
    throw input_error(std::string{images_name} + ": no images, or images without pixels");
  auto label_bytes = copy_of(classes_of.values);
  if (classes != 0)
    if (const auto bad = first_outside(label_bytes, classes); bad < label_bytes.size())
      throw input_error(std::string{labels_name} + ": " + label_problem(label_bytes, bad, classes)
                        + " (the units of the last layer)");
  return std::make_shared<const image_dataset>(copy_of(pixels.values), std::move(label_bytes),
                                               static_cast<std::size_t>(pixels.shape[1]),
                                               static_cast<std::size_t>(pixels.shape[2]), classes);
}

} // namespace troupe
