#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include <zlib.h>

namespace troupe {

/// Owns a zlib stream that decompresses.
class inflater {
public:
  /// @param window_bits as for inflateInit2; it selects the format
  /// @throws std::bad_alloc
  explicit inflater(int window_bits) {
    if (::inflateInit2(&stream_, window_bits) != Z_OK)
      throw std::bad_alloc{};
  }
  inflater(const inflater&) = delete;
  inflater& operator=(const inflater&) = delete;
  ~inflater() { ::inflateEnd(&stream_); }
  z_stream& stream() noexcept { return stream_; }

private:
  z_stream stream_{};
};

/// Makes room for more output: doubles the size, up to `max` + 1 bytes. A size of `max` + 1 means
/// "too long".
/// @param used bytes of `out` with output
/// @param input bytes of the compressed data
inline void grow_output(std::vector<std::byte>& out, std::size_t used, std::size_t input,
                        std::uint64_t max) {
  const std::uint64_t limit = max == std::numeric_limits<std::uint64_t>::max() ? max : max + 1;
  const std::uint64_t wanted = std::max<std::uint64_t>({2 * used, 2 * input, 4096});
  out.resize(static_cast<std::size_t>(std::min(wanted, limit)));
}

} // namespace troupe
