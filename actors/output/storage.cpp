#include "actors/output/storage.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& where) {
  throw std::system_error{errno, std::generic_category(), what + ' ' + where.string()};
}

/// A file descriptor that is closed with its owner.
class descriptor {
public:
  descriptor(const std::filesystem::path& file, int flags)
    : file_(file), fd_(::open(file.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0)
      fail("cannot open", file_);
  }
  ~descriptor() { ::close(fd_); }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const auto n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        fail("cannot write", file_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  std::uintmax_t size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0)
      fail("cannot see the size of", file_);
    return static_cast<std::uintmax_t>(status.st_size);
  }

  void truncate(std::uintmax_t size) const noexcept {
    [[maybe_unused]] const auto failed = ::ftruncate(fd_, static_cast<off_t>(size));
  }

  void sync() const {
    if (::fsync(fd_) != 0)
      fail("cannot sync", file_);
  }

private:
  std::filesystem::path file_;
  int fd_;
};

} // namespace

storage::~storage() = default;

void storage::append_line(const std::filesystem::path& file, std::string_view line) {
  std::string text{line};
  text += '\n';
  append(file, std::as_bytes(std::span{text}));
}

void disk_storage::prepare(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    throw std::system_error{error, "cannot make output directory " + directory.string()};
  // A full disk lets empty files be made.
  replace(directory / ".probe", std::array<std::byte, 4096>{});
  std::filesystem::remove(directory / ".probe", error);
}

void disk_storage::replace(const std::filesystem::path& file, std::span<const std::byte> contents) {
  auto temporary = file;
  temporary += ".tmp";
  try {
    {
      const descriptor out{temporary, O_WRONLY | O_CREAT | O_TRUNC};
      out.write(contents);
      out.sync();
    }
    if (std::rename(temporary.c_str(), file.c_str()) != 0)
      fail("cannot rename to", file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  const descriptor parent{file.has_parent_path() ? file.parent_path() : ".",
                          O_RDONLY | O_DIRECTORY};
  parent.sync();
}

void disk_storage::append(const std::filesystem::path& file, std::span<const std::byte> contents) {
  const descriptor out{file, O_WRONLY | O_CREAT | O_APPEND};
  const auto before = out.size();
  try {
    out.write(contents);
  } catch (...) {
    // Half a line or record would spoil what comes after it, once there is room again.
    out.truncate(before);
    throw;
  }
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

} // namespace troupe
