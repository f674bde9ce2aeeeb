#include "messages/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

shared_memory& shared_memory::operator=(shared_memory other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  return *this;
}

shared_memory::~shared_memory() {
  if (data_ != nullptr)
    ::munmap(data_, size_);
  if (file_ >= 0)
    ::close(file_);
}

shared_memory shared_memory::create(std::size_t bytes) noexcept {
  shared_memory result;
  result.file_ = ::memfd_create("troupe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // If the system lacks memory, fallocate() fails. Without it, the first write would kill the
  // process.
  if (result.file_ < 0 || ::fallocate(result.file_, 0, 0, static_cast<off_t>(bytes)) != 0
      || ::fcntl(result.file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return {};
  auto* data =
    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, result.file_, 0);
  if (data == MAP_FAILED)
    return {};
  result.data_ = static_cast<std::byte*>(data);
  result.size_ = bytes;
  return result;
}

shared_memory shared_memory::open(int file, std::size_t bytes) noexcept {
  shared_memory owner;
  owner.file_ = file;
  struct stat status {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (bytes == 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &status) != 0
      || static_cast<std::size_t>(status.st_size) < bytes)
    return {};
  // Mapping a file without pages of its own would allocate them here, at the cost of this process.
  constexpr std::size_t block_bytes = 512;
  if (static_cast<std::size_t>(status.st_blocks) * block_bytes < bytes)
    return {};
  auto* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  if (data == MAP_FAILED)
    return {};
  shared_memory result;
  result.data_ = static_cast<std::byte*>(data);
  result.size_ = bytes;
  return result;
}

} // namespace troupe
