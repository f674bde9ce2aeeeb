#include "kernels/data/picture_files.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/picture.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// The names of the entries of a folder for which f(entry) is true, sorted by their bytes. Names
/// that begin with a dot are ignored.
template <class F>
std::vector<std::string> names_in(const std::filesystem::path& folder, F f) {
  std::vector<std::string> result;
  std::error_code error;
  for (std::filesystem::directory_iterator i{folder, error}, end; !error && i != end;
       i.increment(error))
    if (const auto name = i->path().filename().string(); name[0] != '.' && f(*i))
      result.push_back(name);
  if (error)
    throw input_error(folder.string() + ": cannot read the folder: " + error.message());
  std::ranges::sort(result);
  return result;
}

bool is_picture(const std::filesystem::directory_entry& x) {
  auto ending = x.path().extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

class picture_dataset final : public dataset {
public:
  picture_dataset(picture_folder folder, picture_size size)
    : folder_(std::move(folder)), size_(size), given_(size.height != 0) {
    if (!given_) {
      const auto first = decode(0);
      size_.height = first.height;
      size_.width = first.width;
    }
    record_.dims = {static_cast<std::int64_t>(size_.channels),
                    static_cast<std::int64_t>(size_.height),
                    static_cast<std::int64_t>(size_.width)};
    record_.label_width = std::max<std::size_t>(folder_.classes.size(), 2);
  }

  std::uint64_t size() const noexcept override { return folder_.files.size(); }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override {
    std::size_t result = folder_.labels.size() * sizeof(std::int32_t);
    for (const auto& x : folder_.files)
      result += sizeof(x) + x.capacity();
    return result;
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    const auto pixels = size_.height * size_.width;
    float* out = features.numbers.data();
    for (const auto record : records) {
      auto x = decode(record);
      if (given_)
        x = scaled(x, size_.height, size_.width);
      else if (x.height != size_.height || x.width != size_.width)
        throw input_error((folder_.path / folder_.files[record]).string() + ": a picture of "
                          + std::to_string(x.width) + " x " + std::to_string(x.height)
                          + " pixels, but the first one has " + std::to_string(size_.width) + " x "
                          + std::to_string(size_.height)
                          + ": set data.image_folder.height and width");
      for (std::size_t c = 0; c < size_.channels; ++c)
        for (std::size_t i = 0; i < pixels; ++i)
          *out++ = static_cast<float>(x.pixels[i * size_.channels + c]) / 255.0F;
    }
    read_labels(records, labels);
  }

  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    for (std::size_t i = 0; i < records.size(); ++i)
      labels.classes[i] = folder_.labels[records[i]];
    return true;
  }

private:
  picture decode(std::uint64_t record) const {
    const auto path = folder_.path / folder_.files[record];
    return decode_picture(read_file(path), size_.channels, path.string());
  }

  picture_folder folder_;
  picture_size size_;
  /// True if the caller chose the size. Otherwise, all pictures must have the size of the first
  /// one.
  bool given_;
  record_shape record_;
};

} // namespace

picture_folder list_pictures(const std::filesystem::path& path,
                             const std::vector<std::string>& classes) {
  picture_folder result;
  result.path = path;
  const auto found = names_in(path, [](const auto& x) { return x.is_directory(); });
  result.classes = classes.empty() ? found : classes;
  for (const auto& name : found) {
    const auto which = std::ranges::find(result.classes, name);
    if (which == result.classes.end())
      throw input_error(path.string() + ": the class \"" + name
                        + "\" has no folder among the training pictures");
    for (const auto& file : names_in(path / name, is_picture)) {
      result.files.push_back(name + "/" + file);
      result.labels.push_back(static_cast<std::int32_t>(which - result.classes.begin()));
    }
  }
  if (result.files.empty())
    throw input_error(path.string()
                      + ": no pictures; expected a folder per class with .png or .jpg files");
  return result;
}

picture_folder list_unlabelled_pictures(const std::filesystem::path& path,
                                        std::vector<std::string> classes) {
  picture_folder result;
  result.path = path;
  result.classes = std::move(classes);
  result.files = names_in(path, is_picture);
  for (const auto& folder : names_in(path, [](const auto& x) { return x.is_directory(); }))
    for (const auto& file : names_in(path / folder, is_picture))
      result.files.push_back(folder + "/" + file);
  std::ranges::sort(result.files);
  result.labels.resize(result.files.size());
  if (result.files.empty())
    throw input_error(path.string() + ": no pictures; expected .png or .jpg files");
  return result;
}

std::shared_ptr<const dataset> picture_files(picture_folder folder, picture_size size) {
  return std::make_shared<const picture_dataset>(std::move(folder), size);
}

} // namespace troupe
