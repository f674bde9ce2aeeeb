// Counts allocations. Without a sanitizer, it replaces malloc, calloc, realloc, and the functions
// for aligned memory. Sanitizers replace these functions themselves and offer a hook.

#include "tests/support/allocations.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

thread_local std::size_t count = 0;
std::atomic<std::size_t> large_count = 0;

void note(std::size_t bytes) noexcept {
  ++count;
  if (bytes >= troupe::test::large_allocation)
    large_count.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

namespace troupe::test {

std::size_t allocations() noexcept {
  return count;
}

std::size_t large_allocations() noexcept {
  return large_count.load(std::memory_order_relaxed);
}

} // namespace troupe::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

extern "C" void __sanitizer_malloc_hook(const volatile void*, std::size_t);
extern "C" void __sanitizer_malloc_hook(const volatile void*, std::size_t n) {
  note(n);
}

#else

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t n) {
  note(n);
  return __libc_malloc(n);
}

void* calloc(std::size_t n, std::size_t size) {
  note(n * size);
  return __libc_calloc(n, size);
}

void* realloc(void* p, std::size_t n) {
  note(n);
  return __libc_realloc(p, n);
}

void* memalign(std::size_t alignment, std::size_t n) {
  note(n);
  return __libc_memalign(alignment, n);
}

void* aligned_alloc(std::size_t alignment, std::size_t n) {
  note(n);
  return __libc_memalign(alignment, n);
}

int posix_memalign(void** p, std::size_t alignment, std::size_t n) {
  note(n);
  *p = __libc_memalign(alignment, n);
  return *p != nullptr || n == 0 ? 0 : ENOMEM;
}

} // extern "C"

#endif
