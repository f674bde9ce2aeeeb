#include "messages/zero_pages.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include <sys/mman.h>

namespace troupe {

namespace {

/// Anonymous memory of the system. It needs no memory that is not written.
class zero_pages final : public buffer {
public:
  static zero_pages* make(std::size_t bytes) {
    auto* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED)
      throw std::bad_alloc{};
    // A huge page would take 2 MiB for a single row. If the system has none, the call fails.
    ::madvise(found, bytes, MADV_NOHUGEPAGE);
    return new zero_pages(static_cast<std::byte*>(found), bytes);
  }

protected:
  void retire() noexcept override { delete this; }

private:
  zero_pages(std::byte* data, std::size_t bytes) : buffer(data, bytes, true) {}
  ~zero_pages() override { ::munmap(data(), capacity()); }
};

/// Smaller vectors are cheap, and a mapping of their own takes a system call.
constexpr std::size_t least_bytes = std::size_t{1} << 20;

} // namespace

payload zero_floats(std::size_t count) {
  const auto bytes = count * sizeof(float);
  if (bytes >= least_bytes)
    return payload::adopt(zero_pages::make(bytes), 0, bytes);
  auto result = payload::floats(count);
  std::ranges::fill(result.as_mutable_floats(), 0.0F);
  return result;
}

} // namespace troupe
