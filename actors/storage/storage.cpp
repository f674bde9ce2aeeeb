#include "actors/storage/storage.hpp"

#include "kernels/file_descriptor.hpp"
#include "kernels/formats/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

/// While a directory is removed, its name begins with this text.
constexpr std::string_view removed = ".old-";

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& where) {
  throw std::system_error{errno, std::generic_category(), what + ' ' + where.string()};
}

std::filesystem::path parent_of(const std::filesystem::path& x) {
  return x.has_parent_path() ? x.parent_path() : ".";
}

/// The path in the same directory as `x` whose name is `prefix` followed by the name of `x`.
std::filesystem::path beside(const std::filesystem::path& x, std::string_view prefix) {
  return parent_of(x) / (std::string{prefix} + x.filename().string());
}

} // namespace

storage::~storage() = default;

/// An open file or directory.
class disk_storage::open_file {
public:
  open_file(disk_storage& owner, const std::filesystem::path& file, int flags)
    : owner_(owner), file_(file) {
    if ((flags & O_CREAT) != 0)
      owner_.before_change("open", file_);
    descriptor_ = file_descriptor{::open(file.c_str(), flags | O_CLOEXEC, 0644)};
    if (!descriptor_)
      fail("cannot open", file_);
  }

  void write(std::span<const std::byte> bytes) const {
    owner_.before_change("write", file_);
    write_all(descriptor_, bytes, file_);
  }

  std::uintmax_t size() const {
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0)
      fail("cannot see the size of", file_);
    return static_cast<std::uintmax_t>(status.st_size);
  }

  void truncate(std::uintmax_t size) const noexcept {
    [[maybe_unused]] const auto failed = ::ftruncate(descriptor_.get(), static_cast<off_t>(size));
  }

  void sync() const {
    owner_.before_change("sync", file_);
    if (::fsync(descriptor_.get()) != 0)
      fail("cannot sync", file_);
  }

  std::vector<std::byte> read() const {
    struct stat facts {};
    if (::fstat(descriptor_.get(), &facts) != 0)
      fail("cannot read", file_);
    if (!S_ISREG(facts.st_mode))
      throw std::system_error{EISDIR, std::generic_category(), "cannot read " + file_.string()};
    std::vector<std::byte> result(static_cast<std::size_t>(facts.st_size));
    std::size_t size = 0;
    while (size < result.size()) {
      const auto n = ::read(descriptor_.get(), result.data() + size, result.size() - size);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        fail("cannot read", file_);
      if (n == 0)
        break;
      size += static_cast<std::size_t>(n);
    }
    result.resize(size);
    return result;
  }

private:
  disk_storage& owner_;
  std::filesystem::path file_;
  file_descriptor descriptor_;
};

void disk_storage::before_change(std::string_view, const std::filesystem::path&) {}

void disk_storage::write_new(const std::filesystem::path& file, std::span<const std::byte> head,
                             std::span<const std::span<const std::byte>> rest) {
  const open_file out{*this, file, O_WRONLY | O_CREAT | O_TRUNC};
  out.write(head);
  for (auto part : rest)
    out.write(part);
  out.sync();
}

void disk_storage::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  before_change("rename", to);
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail("cannot rename to", to);
}

void disk_storage::remove_all(const std::filesystem::path& what) {
  before_change("remove", what);
  std::error_code error;
  std::filesystem::remove_all(what, error);
  if (error)
    throw std::system_error{error, "cannot remove " + what.string()};
}

void disk_storage::sync_directory(const std::filesystem::path& directory) {
  const open_file parent{*this, directory, O_RDONLY | O_DIRECTORY};
  parent.sync();
}

void disk_storage::lock(const std::filesystem::path& directory) {
  lock_ = file_descriptor{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!lock_)
    fail("cannot open", directory);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw std::system_error{EBUSY, std::generic_category(),
                            "another run writes to " + directory.string()};
}

void storage::append_line(const std::filesystem::path& file, std::string_view line) {
  std::string text{line};
  text += '\n';
  append(file, std::as_bytes(std::span{text}));
}

void disk_storage::prepare(const std::filesystem::path& directory) {
  before_change("make", directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    throw std::system_error{error, "cannot make output directory " + directory.string()};
  // A full disk still accepts empty files, so the test file has contents. If this process is killed
  // before it removes the file, tidy() removes it.
  const auto probe =
    directory / (std::string{unfinished_prefix} + "probe-" + std::to_string(::getpid()) + "-0");
  replace(probe, std::array<std::byte, 4096>{});
  std::filesystem::remove(probe, error);
}

void disk_storage::replace(const std::filesystem::path& file, std::span<const std::byte> contents) {
  before_change("open", file);
  file_writer out{file};
  before_change("write", file);
  out.write(contents);
  before_change("rename", file);
  out.finish();
}

void disk_storage::append(const std::filesystem::path& file, std::span<const std::byte> contents) {
  const open_file out{*this, file, O_WRONLY | O_CREAT | O_APPEND};
  const auto before = out.size();
  try {
    out.write(contents);
  } catch (...) {
    // Remove a line or record that is only partly written. Otherwise the next append would continue
    // in the middle of it.
    out.truncate(before);
    throw;
  }
}

std::vector<std::byte> disk_storage::read(const std::filesystem::path& file) {
  // With O_NONBLOCK, open() does not wait for a writer if the file is a pipe.
  return open_file{*this, file, O_RDONLY | O_NONBLOCK}.read();
}

void disk_storage::write_directory(const std::filesystem::path& directory,
                                   std::span<const named_contents> files) {
  const auto parent = parent_of(directory);
  const auto temporary = beside(directory, unfinished_prefix);
  const auto old = beside(directory, removed);
  if (!std::filesystem::is_directory(parent)) {
    prepare(parent);
    sync_directory(parent_of(parent));
  }
  try {
    remove_all(temporary);
    before_change("make", temporary);
    if (::mkdir(temporary.c_str(), 0755) != 0)
      fail("cannot make", temporary);
    for (auto& file : files)
      write_new(temporary / file.name, file.head, file.rest);
    sync_directory(temporary);
    if (std::filesystem::exists(directory)) {
      remove_all(old);
      rename(directory, old);
    }
    rename(temporary, directory);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
    throw;
  }
  sync_directory(parent);
  if (std::filesystem::exists(old))
    remove_all(old);
}

// Renames the directory first, so that readers never see a directory that is only partly removed.
void disk_storage::remove_directory(const std::filesystem::path& directory) {
  const auto old = beside(directory, removed);
  remove_all(old);
  rename(directory, old);
  remove_all(old);
}

std::vector<std::string> disk_storage::directories(const std::filesystem::path& parent) {
  std::vector<std::string> result;
  std::error_code error;
  if (!std::filesystem::exists(parent, error) && !error)
    return result;
  for (std::filesystem::directory_iterator i{parent, error}, end; !error && i != end;
       i.increment(error)) {
    const auto name = i->path().filename().string();
    std::error_code unreadable;
    if (!name.starts_with(unfinished_prefix) && !name.starts_with(removed)
        && i->is_directory(unreadable))
      result.push_back(name);
  }
  if (error)
    throw std::system_error{error, "cannot read directory " + parent.string()};
  std::ranges::sort(result);
  return result;
}

void disk_storage::tidy(const std::filesystem::path& parent, std::string_view directories) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  const auto is_remains = [&](const std::string& name) {
    return !directories.empty()
      && std::ranges::any_of(std::array{unfinished_prefix, removed}, [&](std::string_view prefix) {
           return name.starts_with(std::string{prefix}.append(directories));
         });
  };
  for (std::filesystem::directory_iterator i{parent, error}, end; !error && i != end;
       i.increment(error)) {
    const auto name = i->path().filename().string();
    std::error_code unreadable;
    if (i->is_directory(unreadable) ? is_remains(name)
                                    : i->is_regular_file(unreadable) && is_abandoned_file(name))
      found.push_back(i->path());
  }
  for (auto& x : found)
    remove_all(x);
}

void memory_storage::prepare(const std::filesystem::path&) {}

void memory_storage::replace(const std::filesystem::path& file,
                             std::span<const std::byte> contents) {
  std::lock_guard guard{mutex_};
  files_[file] = std::string{reinterpret_cast<const char*>(contents.data()), contents.size()};
}

void memory_storage::append(const std::filesystem::path& file,
                            std::span<const std::byte> contents) {
  std::lock_guard guard{mutex_};
  files_[file].append(reinterpret_cast<const char*>(contents.data()), contents.size());
}

std::map<std::filesystem::path, std::string> memory_storage::files() const {
  std::lock_guard guard{mutex_};
  return files_;
}

std::string memory_storage::contents(const std::filesystem::path& file) const {
  std::lock_guard guard{mutex_};
  auto i = files_.find(file);
  return i == files_.end() ? std::string{} : i->second;
}

std::vector<std::byte> memory_storage::read(const std::filesystem::path& file) {
  std::lock_guard guard{mutex_};
  auto i = files_.find(file);
  if (i == files_.end())
    throw std::system_error{ENOENT, std::generic_category(), "cannot open " + file.string()};
  const auto bytes = std::as_bytes(std::span{i->second});
  return {bytes.begin(), bytes.end()};
}

void memory_storage::write_directory(const std::filesystem::path& directory,
                                     std::span<const named_contents> files) {
  std::lock_guard guard{mutex_};
  remove_files(directory);
  for (auto& file : files) {
    auto& contents = files_[directory / file.name];
    contents.assign(reinterpret_cast<const char*>(file.head.data()), file.head.size());
    for (auto part : file.rest)
      contents.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
}

void memory_storage::remove_directory(const std::filesystem::path& directory) {
  std::lock_guard guard{mutex_};
  remove_files(directory);
}

void memory_storage::remove_files(const std::filesystem::path& directory) {
  std::erase_if(files_, [&](auto& x) { return x.first.parent_path() == directory; });
}

std::vector<std::string> memory_storage::directories(const std::filesystem::path& parent) {
  std::lock_guard guard{mutex_};
  std::set<std::string> result;
  for (auto& [file, text] : files_)
    if (const auto directory = file.parent_path(); directory.parent_path() == parent)
      result.insert(directory.filename().string());
  return {result.begin(), result.end()};
}

void memory_storage::tidy(const std::filesystem::path&, std::string_view) {}

} // namespace troupe
