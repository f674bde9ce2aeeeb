#include "tests/support/leftovers.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include <sys/stat.h>

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

constexpr auto patience = std::chrono::seconds{10};
constexpr std::string_view anonymous_file = "/memfd:";

/// Mapped anonymous files. A file is identified by its inode.
struct mapped_files {
  /// Memory that this process owns and may lend to others.
  std::set<ino_t> own;
  /// All mappings, as pairs of inode and name.
  std::vector<std::pair<ino_t, std::string>> all;
};

mapped_files mapped() {
  mapped_files result;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find('/');
    const bool shared =
      line.find(anonymous_file) != std::string::npos || line.find("/dev/shm/") != std::string::npos;
    if (name == std::string::npos || !shared)
      continue;
    std::istringstream fields{line};
    std::string range;
    std::string access;
    std::string offset;
    std::string device;
    ino_t inode = 0;
    fields >> range >> access >> offset >> device >> inode;
    if (access.starts_with("rw"))
      result.own.insert(inode);
    result.all.emplace_back(inode, line.substr(name));
  }
  return result;
}

void add_descriptors(std::vector<std::string>& result) {
  const auto memory = mapped();
  std::set<ino_t> open;
  for (const auto& entry : fs::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = fs::read_symlink(entry.path(), gone).string();
    struct stat status {};
    if (gone || ::stat(entry.path().c_str(), &status) != 0
        || target.ends_with("/fd")) // the descriptor of this iteration itself
      continue;
    open.insert(status.st_ino);
    if (!target.starts_with(anonymous_file) || !memory.own.contains(status.st_ino))
      result.push_back("descriptor " + target);
  }
  for (const auto& [inode, name] : memory.all)
    if (!open.contains(inode))
      result.push_back("shared memory " + name);
}

void add_threads(std::vector<std::string>& result) {
  for (const auto& entry : fs::directory_iterator{"/proc/self/task"}) {
    std::string name;
    if (std::ifstream file{entry.path() / "comm"}; std::getline(file, name))
      result.push_back("thread " + name);
  }
}

/// All descriptors, threads and mappings of this process as sorted texts. A text may occur several
/// times.
std::vector<std::string> everything() {
  std::vector<std::string> result;
  add_descriptors(result);
  add_threads(result);
  const auto of_driver = [](const std::string& x) { return x.find("/dev/nvidia") != x.npos; };
  if (std::ranges::any_of(result, of_driver))
    return {}; // a GPU driver keeps threads and descriptors
  std::ranges::sort(result);
  return result;
}

std::vector<std::string> beyond(const std::vector<std::string>& before) {
  std::vector<std::string> result;
  std::ranges::set_difference(everything(), before, std::back_inserter(result));
  return result;
}

} // namespace

leftovers::leftovers() : before_(everything()) {}

void leftovers::note(const std::string& test_case) {
  for (auto& x : beyond(before_))
    if (std::ranges::find(seen_, x, [](auto& y) { return y.first; }) == seen_.end())
      seen_.emplace_back(std::move(x), test_case);
}

std::vector<std::string> leftovers::found() const {
  const auto end = std::chrono::steady_clock::now() + patience;
  auto result = beyond(before_);
  while (!result.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    result = beyond(before_);
  }
  for (auto& x : result)
    if (const auto i = std::ranges::find(seen_, x, [](auto& y) { return y.first; });
        i != seen_.end())
      x += ", first seen after " + i->second;
  return result;
}

} // namespace troupe::test
