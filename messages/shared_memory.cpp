#include "messages/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE // Linux 5.1, which is younger than some headers
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace troupe {

namespace {

/// After this call, nobody can map the file for writing, write to it, or free a part of it.
/// Existing mappings stay writable. Returns false on Linux before 5.1.
bool keep_others_from_writing(int file) noexcept {
  return ::fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
}

/// The seals that open() requires. A seal is a mark of a file that forbids an operation on the
/// file. Each file that troupe creates on this system has these seals.
int usual_seals() noexcept {
  static const bool future_write = [] {
    const int file = ::memfd_create("troupe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool known = file >= 0 && keep_others_from_writing(file);
    if (file >= 0)
      ::close(file);
    return known;
  }();
  return F_SEAL_SHRINK | (future_write ? F_SEAL_FUTURE_WRITE : 0);
}

} // namespace

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
  // fallocate() allocates the memory now, and fails if the system has too little. Without this
  // call, the system would notice the lack of memory only at a later write, and would kill the
  // process.
  if (result.file_ < 0 || ::fallocate(result.file_, 0, 0, static_cast<off_t>(bytes)) != 0)
    return {};
  auto* data =
    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, result.file_, 0);
  if (data == MAP_FAILED)
    return {};
  result.data_ = static_cast<std::byte*>(data);
  result.size_ = bytes;
  // Seal the file only after it is mapped, because a sealed file cannot be mapped for writing.
  keep_others_from_writing(result.file_);
  if (::fcntl(result.file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return {};
  return result;
}

shared_memory shared_memory::open(int file, std::size_t bytes) noexcept {
  shared_memory owner;
  owner.file_ = file;
  struct stat status {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  const int wanted = usual_seals();
  if (bytes == 0 || seals < 0 || (seals & wanted) != wanted || ::fstat(file, &status) != 0
      || static_cast<std::size_t>(status.st_size) < bytes)
    return {};
  // A file may have pages that are not allocated. Mapping the file would allocate these pages, and
  // their memory would count as memory of this process.
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
