#include "actors/model/onnx/external_data.hpp"

#include "actors/model/onnx/constant.hpp"
#include "kernels/error.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>

namespace troupe {

namespace {

namespace fs = std::filesystem;

class external_reader {
public:
  external_reader(const std::string& name, const fs::path& folder) : name_(name) {
    std::error_code error;
    folder_ = fs::canonical(folder.empty() ? fs::path{"."} : folder, error);
  }

  void load(onnx::TensorProto& x) {
    std::string location;
    std::uint64_t offset = 0;
    const auto needed = onnx_raw_bytes(x, name_);
    auto length = needed;
    for (const auto& entry : x.external_data()) {
      if (entry.key() == "location")
        location = entry.value();
      else if (entry.key() == "offset")
        offset = number(x, entry);
      else if (entry.key() == "length")
        length = number(x, entry);
    }
    if (length != needed)
      refuse(x,
             "needs " + std::to_string(needed) + " bytes, but \"length\" is "
               + std::to_string(length));
    auto& from = file(x, location);
    if (offset > from.size || length > from.size - offset)
      refuse(x,
             "ends at byte " + std::to_string(offset) + " + " + std::to_string(length) + " of "
               + location + ", which has " + std::to_string(from.size)
               + " bytes: the file is cut off, or belongs to another model");
    // All tensors in a file together may have at most as many bytes as the file. Without this
    // limit, many tensors could name the same bytes of a large file, and fill the memory.
    if (length > from.unread)
      refuse(x, "shares bytes of " + location + " with other tensors");
    from.unread -= length;
    std::string bytes(length, '\0');
    from.stream.seekg(static_cast<std::streamoff>(offset));
    if (!from.stream.read(bytes.data(), static_cast<std::streamsize>(length)))
      refuse(x, "cannot be read from " + location);
    x.set_raw_data(std::move(bytes));
    x.clear_external_data();
    x.clear_data_location();
  }

private:
  struct open_file {
    std::ifstream stream;
    std::uint64_t size = 0;
    std::uint64_t unread = 0;
  };

  [[noreturn]] void refuse(const onnx::TensorProto& x, const std::string& what) const {
    throw input_error(name_ + ": tensor \"" + x.name() + "\" " + what);
  }

  std::uint64_t number(const onnx::TensorProto& x,
                       const onnx::StringStringEntryProto& entry) const {
    std::uint64_t result = 0;
    const auto& text = entry.value();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (error != std::errc{} || end != text.data() + text.size())
      refuse(x, "has \"" + entry.key() + "\" \"" + text + "\"; expected a number of bytes");
    return result;
  }

  open_file& file(const onnx::TensorProto& x, const std::string& location) {
    const fs::path relative{location};
    std::error_code error;
    const auto path = fs::weakly_canonical(folder_ / relative, error);
    const bool inside =
      std::ranges::mismatch(folder_, path).in1 == folder_.end() && path != folder_;
    if (error || location.empty() || relative.is_absolute() || !inside)
      refuse(x,
             "is stored in \"" + location
               + "\", outside the folder of the model; copy the file "
                 "beside the model, and name it there");
    if (const auto found = files_.find(path); found != files_.end())
      return found->second;
    if (!fs::is_regular_file(path, error))
      refuse(x,
             "is stored in \"" + location
               + "\", and there is no such file beside the model; "
                 "copy both files, or export the model as one file (external_data=False)");
    open_file result;
    result.stream.open(path, std::ios::binary);
    result.size = result.unread = fs::file_size(path, error);
    if (!result.stream || error)
      refuse(x, "is stored in \"" + location + "\", which cannot be read");
    return files_.emplace(path, std::move(result)).first->second;
  }

  std::string name_;
  fs::path folder_;
  /// Open files by their canonical paths, because a file may have several paths.
  std::map<fs::path, open_file> files_;
};

} // namespace

void load_external_data(onnx::ModelProto& model, const std::string& name, const fs::path& folder) {
  external_reader reader{name, folder};
  for (auto& x : *model.mutable_graph()->mutable_initializer())
    if (x.data_location() == onnx::TensorProto::EXTERNAL)
      reader.load(x);
}

} // namespace troupe
