#include "kernels/formats/file.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/glob.hpp"
#include "kernels/formats/gzip.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, int error) {
  throw input_error(path.string() + ": " + std::string{what} + ": "
                    + std::generic_category().message(error));
}

/// Limits for compressed files (see read_plain_or_gzip). Real data compresses to a hundredth of its
/// size at best. gzip compresses zeros to a thousandth.
constexpr std::uint64_t most_ratio = 100;
constexpr std::uint64_t least_decompressed = std::uint64_t{256} << 20;

/// A file that is open for reading.
class input_file {
public:
  explicit input_file(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!descriptor_)
      fail(path, "cannot open", errno);
    if (::fstat(get(), &info_) != 0)
      fail(path, "cannot read", errno);
    if (S_ISDIR(info_.st_mode))
      throw input_error(path.string() + ": is a directory; expected a file");
  }

  int get() const noexcept { return descriptor_.get(); }

  /// The size in bytes; 0 if the file is not a regular file.
  std::uint64_t size() const noexcept {
    return S_ISREG(info_.st_mode) ? static_cast<std::uint64_t>(info_.st_size) : 0;
  }

private:
  file_descriptor descriptor_;
  struct stat info_ {};
};

/// A mapped region of memory.
struct mapping {
  mapping(void* begin, std::size_t size) noexcept : begin(begin), size(size) {}
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping() { ::munmap(begin, size); }

  void* begin;
  std::size_t size;
};

/// Reads up to out.size() bytes; fewer only at the end of the file.
std::size_t read_some(int fd, std::span<std::byte> out, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::read(fd, out.data() + done, out.size() - done);
    if (n == 0)
      break;
    if (n < 0 && errno != EINTR)
      fail(path, "cannot read", errno);
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  return done;
}

[[noreturn]] void fail_to_write(const char* what, const std::filesystem::path& path) {
  throw std::system_error{errno, std::generic_category(), std::string{what} + ' ' + path.string()};
}

std::vector<std::byte> read_all(const input_file& file, const std::filesystem::path& path,
                                std::uint64_t max_bytes) {
  // The size of the file is only a hint, because pipes have no size and a file may grow while it is
  // read. One byte more than the limit is read, to detect a file that is too long.
  const auto hint = file.size();
  std::vector<std::byte> result;
  std::uint64_t want = std::max<std::uint64_t>(hint + 1, 4096);
  while (true) {
    const std::size_t old = result.size();
    result.resize(static_cast<std::size_t>(std::min(want, max_bytes + 1)));
    const std::size_t got = read_some(file.get(), std::span{result}.subspan(old), path);
    const bool at_end = old + got < result.size();
    result.resize(old + got);
    if (result.size() > max_bytes)
      throw input_error(path.string() + ": longer than the " + std::to_string(max_bytes)
                        + " bytes accepted here");
    if (at_end)
      return result;
    want = std::uint64_t{result.size()} * 2;
  }
}

std::vector<std::byte> plain_or_gzip(std::vector<std::byte> bytes,
                                     const std::filesystem::path& path, std::uint64_t max_bytes) {
  if (!is_gzip(bytes))
    return bytes;
  // The largest accepted result. A small compressed file whose result is larger is refused.
  const auto believed = std::max(least_decompressed, most_ratio * bytes.size());
  return gunzip(bytes, std::min(max_bytes, believed), path.string());
}

} // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return read_all(input_file{path}, path, max_bytes);
}

std::vector<std::byte> read_plain_or_gzip(const std::filesystem::path& path,
                                          std::uint64_t max_bytes) {
  return plain_or_gzip(read_file(path, max_bytes), path, max_bytes);
}

shared_bytes share(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {owner, *owner, false};
}

shared_bytes map_plain_or_gzip(const std::filesystem::path& path) {
  const input_file file{path};
  if (file.size() > 0) {
    const auto size = static_cast<std::size_t>(file.size());
    void* begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (begin == MAP_FAILED)
      fail(path, "cannot map", errno);
    auto owner = std::make_shared<const mapping>(begin, size);
    const std::span<const std::byte> bytes{static_cast<const std::byte*>(begin), size};
    if (!is_gzip(bytes))
      return {std::move(owner), bytes, true};
  }
  return share(
    plain_or_gzip(read_all(file, path, default_max_file_bytes), path, default_max_file_bytes));
}

void expect_random_access(const shared_bytes& x) noexcept {
  if (x.mapped)
    ::madvise(const_cast<std::byte*>(x.bytes.data()), x.bytes.size(), MADV_RANDOM);
}

void write_all(const file_descriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR)
      fail_to_write("cannot write", path);
    bytes = bytes.subspan(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  const auto pattern = path.filename().string();
  if (pattern.find_first_of("*?") == std::string::npos)
    return {path};
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
  std::vector<std::filesystem::path> result;
  std::error_code error;
  for (std::filesystem::directory_iterator i{folder, error}, end; !error && i != end;
       i.increment(error)) {
    const auto name = i->path().filename().string();
    const bool hidden = name.starts_with('.') && !pattern.starts_with('.');
    if (!hidden && matches_glob(pattern, name))
      result.push_back(path.parent_path() / name);
  }
  if (error)
    fail(folder, "cannot read the directory", error.value());
  if (result.empty())
    throw input_error(path.string() + ": no file has such a name");
  std::ranges::sort(result);
  return result;
}

// The name is ".tmp-FILE-PROCESS-NUMBER".
bool is_abandoned_file(std::string_view name) {
  const auto number = name.rfind('-');
  const auto process = number == 0 || number == name.npos ? name.npos : name.rfind('-', number - 1);
  if (!name.starts_with(unfinished_prefix) || process == name.npos
      || process < unfinished_prefix.size())
    return false;
  const auto digits = [&](std::size_t begin, std::size_t end) {
    pid_t result = -1;
    const auto read = std::from_chars(name.data() + begin, name.data() + end, result);
    return read.ec == std::errc{} && read.ptr == name.data() + end ? result : -1;
  };
  const auto writer = digits(process + 1, number);
  if (writer <= 0 || digits(number + 1, name.size()) < 0)
    return false;
  return writer == ::getpid() || (::kill(writer, 0) != 0 && errno == ESRCH);
}

file_writer::file_writer(std::filesystem::path path)
  : path_(std::move(path)), folder_(path_.has_parent_path() ? path_.parent_path() : ".") {
  const auto name = std::string{unfinished_prefix} + path_.filename().string() + '-'
    + std::to_string(::getpid()) + '-';
  // An earlier process with the same id may have left files behind. The names of existing files are
  // skipped.
  for (unsigned i = 0; !descriptor_; ++i) {
    const auto file = folder_ / (name + std::to_string(i));
    descriptor_ =
      file_descriptor{::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
    if (descriptor_)
      temporary_ = file;
    else if (errno != EEXIST)
      fail_to_write("cannot create a file beside", path_);
  }
}

file_writer::~file_writer() {
  if (!temporary_.empty())
    ::unlink(temporary_.c_str());
}

void file_writer::write(std::span<const std::byte> bytes) {
  write_all(descriptor_, bytes, path_);
}

void file_writer::finish() {
  if (::fsync(descriptor_.get()) != 0 || ::close(descriptor_.release()) != 0)
    fail_to_write("cannot write", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_to_write("cannot replace", path_);
  temporary_.clear();
  const file_descriptor folder{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!folder || ::fsync(folder.get()) != 0)
    fail_to_write("cannot sync", folder_);
}

} // namespace troupe
