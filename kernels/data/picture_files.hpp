#pragma once

#include "kernels/data/dataset.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The files of a folder that contains a folder of pictures for each class: `path/CLASS/*.png`,
/// also .jpg and .jpeg, in lower or upper case. Other files, and names that begin with a dot, are
/// ignored.
struct picture_folder {
  std::filesystem::path path;
  /// Names of the classes, sorted by their bytes.
  std::vector<std::string> classes;
  /// Paths of the pictures, relative to `path`, and the class of each picture. They are ordered by
  /// class, and then by the bytes of their names.
  std::vector<std::string> files;
  std::vector<std::int32_t> labels;
};

/// Lists the pictures of a folder with a folder for each class.
/// @param classes the classes that may occur. Empty: the classes in the folder.
/// @throws input_error that names the folder, if it cannot be read, has no pictures, or has a class
/// that is not in `classes`.
picture_folder list_pictures(const std::filesystem::path& path,
                             const std::vector<std::string>& classes = {});

/// Lists the pictures in a folder and in the folders in it, sorted by the bytes of their paths. The
/// classes of these pictures are not known, so all have the label 0.
/// @param classes the classes of the training data.
/// @throws input_error that names the folder, if it cannot be read or has no pictures.
picture_folder list_unlabelled_pictures(const std::filesystem::path& path,
                                        std::vector<std::string> classes);

/// How pictures become features.
struct picture_size {
  /// Pictures are scaled to this size. If `height` is 0, all pictures must have the size of the
  /// first one.
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 3; ///< 1 or 3
};

/// A data set of the pictures of a folder: features (channels, height, width), read as x / 255, and
/// classes. A file is read and decoded each time its record is read, so the data may be larger than
/// the memory.
/// @throws input_error that names a file, in the same cases as decode_picture. `read` also throws
/// if a file no longer exists. If no size was given, `read` also throws for a picture whose size
/// differs from that of the first one.
std::shared_ptr<const dataset> picture_files(picture_folder folder, picture_size size);

} // namespace troupe
