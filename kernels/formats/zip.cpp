#include "kernels/formats/zip.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/inflater.hpp"
#include "kernels/formats/parsing.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace troupe {

namespace {

constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t directory_signature = 0x02014b50;
constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::size_t end_size = 22;
constexpr std::size_t directory_size = 46;
constexpr std::size_t local_size = 30;
constexpr std::uint32_t in_zip64 = 0xffffffff;

std::uint32_t u16(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint32_t>(bytes[at])
    | std::to_integer<std::uint32_t>(bytes[at + 1]) << 8;
}

std::uint32_t u32(std::span<const std::byte> bytes, std::size_t at) {
  return u16(bytes, at) | u16(bytes, at + 2) << 16;
}

/// Finds the end record, searching backwards: a comment of at most 64 KiB may follow it.
std::span<const std::byte> find_end(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() >= end_size) {
    const std::size_t last = bytes.size() - end_size;
    for (std::size_t back = 0; back <= std::min<std::size_t>(last, 0xffff); ++back)
      if (u32(bytes, last - back) == end_signature && u16(bytes, last - back + 20) <= back)
        return bytes.subspan(last - back);
  }
  reject(name,
         "not a zip archive, or truncated (its end record is missing); save or fetch it again");
}

std::string member_text(const std::string& member) {
  return "member \"" + excerpt(member) + "\"";
}

/// The packed bytes of a member with its local header at `offset`.
std::span<const std::byte> packed_data(std::span<const std::byte> bytes, std::uint64_t offset,
                                       std::uint64_t packed, const std::string& member,
                                       std::string_view name) {
  const auto outside = [&] {
    reject(name,
           member_text(member) + " lies outside the file, which has " + std::to_string(bytes.size())
             + " bytes; is it truncated?");
  };
  if (offset > bytes.size() || bytes.size() - offset < local_size)
    outside();
  const auto local = bytes.subspan(offset);
  if (u32(local, 0) != local_signature)
    reject(name, member_text(member) + " does not begin where the directory says");
  const std::uint64_t begin = local_size + u16(local, 26) + u16(local, 28);
  if (begin > local.size() || packed > local.size() - begin)
    outside();
  return local.subspan(begin, packed);
}

zip_member read_member(std::span<const std::byte> bytes, std::span<const std::byte> entry,
                       std::string_view name) {
  zip_member result;
  result.name = {reinterpret_cast<const char*>(entry.data()) + directory_size, u16(entry, 28)};
  const auto method = u16(entry, 10);
  const std::uint32_t packed = u32(entry, 20);
  const std::uint32_t offset = u32(entry, 42);
  result.size = u32(entry, 24);
  result.checksum = u32(entry, 16);
  result.deflated = method == 8;
  if ((u16(entry, 8) & 1) != 0)
    reject(name,
           member_text(result.name) + " is encrypted; expected an archive without a password");
  if (method != 0 && method != 8)
    reject(name,
           member_text(result.name) + " is packed by method " + std::to_string(method)
             + "; expected 0 (stored) or 8 (deflated), as numpy.savez writes");
  if (packed == in_zip64 || offset == in_zip64 || result.size == in_zip64)
    reject(name,
           member_text(result.name)
             + " is beyond 4 GiB; save large arrays with numpy.save, as .npy files");
  result.data = packed_data(bytes, offset, packed, result.name, name);
  return result;
}

/// Inflates data that should give `size` bytes. Stops at the first byte beyond.
std::vector<std::byte> inflate(std::span<const std::byte> packed, std::uint64_t size,
                               const std::string& what, std::string_view name) {
  inflater state{-MAX_WBITS}; // Without a header.
  z_stream& z = state.stream();
  // A member has less than 4 GiB, so zlib's 32-bit counters hold it.
  z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  std::vector<std::byte> out;
  std::size_t used = 0;
  int result = Z_OK;
  while (result == Z_OK && used <= size) {
    grow_output(out, used, packed.size(), size);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + used);
    z.avail_out = static_cast<uInt>(out.size() - used);
    result = ::inflate(&z, Z_NO_FLUSH);
    used = out.size() - z.avail_out;
    if (result == Z_OK && z.avail_in == 0 && z.avail_out > 0)
      result = Z_BUF_ERROR;
  }
  if (result == Z_MEM_ERROR)
    throw std::bad_alloc{};
  if (result != Z_STREAM_END || used != size)
    reject(name,
           what + " is corrupt: its deflated data "
             + (z.msg != nullptr ? "are wrong (" + std::string{z.msg} + ")"
                                 : "do not give the " + std::to_string(size) + " bytes announced")
             + "; fetch the file again");
  out.resize(used);
  return out;
}

} // namespace

std::vector<zip_member> parse_zip(std::span<const std::byte> bytes, std::string_view name) {
  const auto end = find_end(bytes, name);
  const std::uint32_t count = u16(end, 10);
  const std::uint32_t size = u32(end, 12);
  const std::uint32_t offset = u32(end, 16);
  if (count != u16(end, 8))
    reject(name, "one volume of several; expected a whole zip archive");
  if (offset > bytes.size() || size > bytes.size() - offset)
    reject(name, "its directory lies outside the file; is it truncated?");
  auto directory = bytes.subspan(offset, size);
  std::vector<zip_member> result;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool header =
      directory.size() >= directory_size && u32(directory, 0) == directory_signature;
    const std::size_t length =
      !header ? 0 : directory_size + u16(directory, 28) + u16(directory, 30) + u16(directory, 32);
    if (!header || length > directory.size())
      reject(name, "corrupt directory at member " + std::to_string(i));
    result.push_back(read_member(bytes, directory.first(length), name));
    directory = directory.subspan(length);
  }
  return result;
}

std::vector<std::byte> unzip(const zip_member& member, std::uint64_t max_bytes,
                             std::string_view name) {
  const std::string what = member_text(member.name);
  if (member.size > max_bytes)
    reject(name,
           what + " unpacks to " + std::to_string(member.size) + " bytes, more than the "
             + std::to_string(max_bytes) + " accepted here");
  if (!member.deflated && member.data.size() != member.size)
    reject(name,
           what + " is corrupt: stored in " + std::to_string(member.data.size())
             + " bytes, announced with " + std::to_string(member.size));
  auto result = member.deflated ? inflate(member.data, member.size, what, name)
                                : std::vector<std::byte>(member.data.begin(), member.data.end());
  const auto checksum = ::crc32_z(0, reinterpret_cast<const Bytef*>(result.data()), result.size());
  if (checksum != member.checksum)
    reject(name, what + " is corrupt: its checksum is wrong; fetch the file again");
  return result;
}

} // namespace troupe
