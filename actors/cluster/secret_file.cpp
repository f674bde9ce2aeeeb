#include "actors/cluster/secret_file.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <system_error>

namespace troupe {

namespace {

constexpr std::size_t longest_secret = 4096;
constexpr std::size_t shortest_secret = 16;

} // namespace

cluster_secret read_secret(const std::filesystem::path& path) {
  const auto bytes = read_file(path, longest_secret);
  cluster_secret result;
  result.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  result.text.erase(result.text.find_last_not_of(" \t\r\n") + 1);
  if (result.text.size() < shortest_secret)
    throw input_error{path.string() + ": a secret of " + std::to_string(result.text.size())
                      + " bytes is easy to guess; expected at least "
                      + std::to_string(shortest_secret)
                      + ". `openssl rand -hex 32 > FILE` makes a good one"};
  using std::filesystem::perms;
  std::error_code error;
  const auto who = std::filesystem::status(path, error).permissions();
  const auto others =
    perms::group_read | perms::group_write | perms::others_read | perms::others_write;
  if (!error && (who & others) != perms::none)
    result.warning =
      path.string() + " can be read by other users of this host: `chmod 600 " + path.string() + "`";
  return result;
}

} // namespace troupe
