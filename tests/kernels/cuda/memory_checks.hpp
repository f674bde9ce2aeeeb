#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::test {

/// The time and place of an access: launch, block, thread and phase. Launches are counted from the
/// first launch of the program.
struct moment {
  std::uint64_t launch = 0;
  std::uint32_t block = 0;
  /// Number of barriers that the block has passed.
  std::uint32_t phase = 0;
  std::uint32_t thread = 0;
};

/// The latest accesses to two bytes of memory. They are enough to find the races that occur in the
/// order in which the simulator runs the threads.
class word {
public:
  static constexpr std::uint32_t several = ~std::uint32_t{0};
  static constexpr std::size_t size = 2;
  /// Number of words for an element, or for memory, of this many bytes.
  static constexpr std::size_t count(std::size_t bytes) { return (bytes + size - 1) / size; }

  /// Returns the text of an error, or an empty text.
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

/// All allocations, with the accesses to their memory.
class checked_memory {
public:
  void* allocate(std::size_t bytes);
  /// Returns the text of an error, or an empty text.
  std::string release(void* memory);
  /// Returns the words of the bytes [p, p + bytes). Returns null if the bytes are not all in one
  /// allocation.
  word* find(const void* p, std::size_t bytes);

private:
  static constexpr std::size_t band = 256;
  struct allocation {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    std::vector<word> words;
  };
  /// The key is the address of the first usable byte.
  std::map<std::uintptr_t, allocation> allocations_;
  std::pair<const std::uintptr_t, allocation>* last_ = nullptr;
};

} // namespace troupe::test
