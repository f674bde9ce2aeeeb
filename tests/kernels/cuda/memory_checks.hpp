#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::test {

/// Who runs: counted from the first launch of the program.
struct moment {
  std::uint64_t launch = 0;
  std::uint32_t block = 0;
  /// Barriers that the block has passed.
  std::uint32_t phase = 0;
  std::uint32_t thread = 0;
};

/// What was done to four bytes of memory; enough to find races in the order in which they run.
class word {
public:
  static constexpr std::uint32_t several = ~std::uint32_t{0};

  /// An empty text, or what is wrong.
  const char* read(const moment& now);
  const char* write(const moment& now);
  void fill() { written_ = true; }
  bool is_written() const { return written_; }

private:
  struct access {
    std::uint64_t launch = 0;
    std::uint32_t block = 0;
    std::uint32_t phase = 0;
    std::uint32_t thread = 0;

    bool conflicts(const moment& now) const {
      return launch == now.launch
        && (block != now.block || (phase == now.phase && thread != now.thread));
    }
  };
  access last_write_;
  access last_read_;
  bool written_ = false;
};

/// Allocations, and what was done to them.
class checked_memory {
public:
  void* allocate(std::size_t bytes);
  /// An empty text, or what is wrong.
  std::string release(void* memory);
  /// The words of [p, p + bytes); null if that is not all in one allocation.
  word* find(const void* p, std::size_t bytes);

private:
  static constexpr std::size_t band = 256;
  struct allocation {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    std::vector<word> words;
  };
  /// By the address of the first byte that may be used.
  std::map<std::uintptr_t, allocation> allocations_;
  std::pair<const std::uintptr_t, allocation>* last_ = nullptr;
};

} // namespace troupe::test
