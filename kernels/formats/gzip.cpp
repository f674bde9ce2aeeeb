#include "kernels/formats/gzip.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/parsing.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include <zlib.h>

namespace troupe {

namespace {

constexpr int gzip_window = MAX_WBITS + 16; // zlib's code for the gzip format

/// Limits a size to 32 bits, because zlib counts in 32 bits.
uInt piece(std::size_t n) noexcept {
  return static_cast<uInt>(std::min<std::size_t>(n, std::numeric_limits<uInt>::max()));
}

/// Owns zlib's state of a decompression.
class inflater {
public:
  inflater() {
    if (::inflateInit2(&stream_, gzip_window) != Z_OK)
      throw std::bad_alloc{};
  }
  inflater(const inflater&) = delete;
  inflater& operator=(const inflater&) = delete;
  ~inflater() { ::inflateEnd(&stream_); }
  z_stream& stream() noexcept { return stream_; }

private:
  z_stream stream_{};
};

/// Makes room for more output: doubles the size, up to `max` + 1 bytes. If output also fills the
/// additional byte, it is longer than `max`, which is an error.
/// @param used bytes of `out` with output
/// @param input bytes of the compressed data
void grow_output(std::vector<std::byte>& out, std::size_t used, std::size_t input,
                 std::uint64_t max) {
  const std::uint64_t limit = max == std::numeric_limits<std::uint64_t>::max() ? max : max + 1;
  const std::uint64_t wanted = std::max<std::uint64_t>({2 * used, 2 * input, 4096});
  out.resize(static_cast<std::size_t>(std::min(wanted, limit)));
}

Bytef* as_zlib(const std::byte* p) noexcept {
  return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(p));
}

} // namespace

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::uint64_t max_bytes,
                              std::string_view name) {
  if (!is_gzip(bytes))
    reject(name, "not a gzip file (its first bytes should be 1f 8b)");
  inflater state;
  z_stream& z = state.stream();
  std::vector<std::byte> out;
  std::size_t used = 0;
  std::size_t consumed = 0;
  while (true) {
    if (used == out.size())
      grow_output(out, used, bytes.size(), max_bytes);
    z.next_in = as_zlib(bytes.data() + consumed);
    z.avail_in = piece(bytes.size() - consumed);
    z.next_out = as_zlib(out.data() + used);
    z.avail_out = piece(out.size() - used);
    const uInt had_in = z.avail_in;
    const uInt had_out = z.avail_out;
    const int result = ::inflate(&z, Z_NO_FLUSH);
    consumed += had_in - z.avail_in;
    used += had_out - z.avail_out;
    if (used > max_bytes)
      reject(name,
             "decompresses to more than the " + std::to_string(max_bytes) + " bytes accepted here");
    if (result == Z_STREAM_END) {
      if (consumed == bytes.size())
        break;
      if (!is_gzip(bytes.subspan(consumed)))
        reject(name, "has bytes after the gzip data, at byte " + std::to_string(consumed));
      ::inflateReset(&z);
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc{};
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      reject(name,
             "corrupt gzip data near byte " + std::to_string(consumed) + ": "
               + (z.msg != nullptr ? z.msg : "unknown error") + "; fetch the file again");
    } else if (consumed == bytes.size() && used < out.size()) {
      reject(name,
             "truncated gzip data: ends after " + std::to_string(consumed)
               + " bytes, in the middle of a member; fetch the file again");
    }
  }
  out.resize(used);
  return out;
}

std::vector<std::byte> gzip(std::span<const std::byte> bytes) {
  z_stream z{};
  if (::deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY)
      != Z_OK)
    throw std::bad_alloc{};
  std::vector<std::byte> out(::deflateBound(&z, bytes.size()));
  std::size_t consumed = 0;
  std::size_t used = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    z.next_in = as_zlib(bytes.data() + consumed);
    z.avail_in = piece(bytes.size() - consumed);
    z.next_out = as_zlib(out.data() + used);
    z.avail_out = piece(out.size() - used);
    const uInt had_in = z.avail_in;
    const uInt had_out = z.avail_out;
    result = ::deflate(&z, consumed + had_in == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    consumed += had_in - z.avail_in;
    used += had_out - z.avail_out;
  }
  ::deflateEnd(&z);
  out.resize(used);
  return out;
}

} // namespace troupe
