#include "kernels/formats/npz.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>

namespace troupe {

npz_file::npz_file(std::span<const std::byte> bytes, std::string_view name)
  : name_(name), archive_(bytes, name) {
  constexpr std::string_view ending = ".npy";
  for (const auto& member : archive_.members())
    if (member.name.ends_with(ending)) {
      names_.push_back(member.name.substr(0, member.name.size() - ending.size()));
      members_.push_back(member);
    }
  if (names_.empty())
    throw input_error(name_
                      + ": a zip archive without arrays; expected members called *.npy, as "
                        "numpy.savez writes them");
}

std::vector<std::byte> npz_file::read(std::string_view array, std::uint64_t max_bytes) const {
  const auto found = std::ranges::find(names_, array);
  if (found == names_.end())
    throw input_error(name_ + ": no array \"" + excerpt(array) + "\"; "
                      + suggestion(array, names_));
  return archive_.read(members_[static_cast<std::size_t>(found - names_.begin())], max_bytes);
}

} // namespace troupe
