#include "kernels/formats/zip.hpp"

#include "kernels/formats/parsing.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <new>

#include <zip.h>

namespace troupe {

namespace {

/// Number of bytes that libzip unpacks in one call. These bytes stay in the processor's cache, so
/// it is cheap to copy them afterwards.
constexpr std::size_t piece_bytes = std::size_t{64} << 10;

/// Owns an error object of libzip, which allocates memory.
class archive_error {
public:
  archive_error() noexcept { ::zip_error_init(&error_); }
  archive_error(const archive_error&) = delete;
  archive_error& operator=(const archive_error&) = delete;
  ~archive_error() { ::zip_error_fini(&error_); }
  zip_error_t* get() noexcept { return &error_; }

private:
  zip_error_t error_;
};

struct file_closer {
  void operator()(zip_file_t* x) const noexcept { ::zip_fclose(x); }
};
using open_member = std::unique_ptr<zip_file_t, file_closer>;

std::string member_text(const std::string& member) {
  return "member \"" + excerpt(member) + "\"";
}

[[noreturn]] void fail_to_open(zip_error_t* error, std::string_view name) {
  switch (::zip_error_code_zip(error)) {
  case ZIP_ER_MEMORY:
    throw std::bad_alloc{};
  case ZIP_ER_NOZIP:
    reject(name,
           "not a zip archive, or truncated (its end record is missing); save or fetch it again");
  case ZIP_ER_MULTIDISK:
    reject(name, "one volume of several; expected a whole zip archive");
  default:
    reject(name,
           std::string{"its directory is corrupt, or lies outside the file ("}
             + ::zip_error_strerror(error) + "); is it truncated?");
  }
}

::zip* open_archive(std::span<const std::byte> bytes, std::string_view name) {
  archive_error error;
  // Without this check, libzip would accept zero bytes as an archive without members.
  if (bytes.empty())
    ::zip_error_set(error.get(), ZIP_ER_NOZIP, 0);
  auto* const source = bytes.empty()
    ? nullptr
    : ::zip_source_buffer_create(bytes.data(), bytes.size(), 0, error.get());
  auto* const result =
    source == nullptr ? nullptr : ::zip_open_from_source(source, ZIP_RDONLY, error.get());
  if (result == nullptr) {
    ::zip_source_free(source);
    fail_to_open(error.get(), name);
  }
  return result;
}

/// Throws the error of a member that cannot be unpacked.
/// @param size the size of the member according to the archive
[[noreturn]] void fail_to_read(zip_file_t* file, const std::string& what, std::uint64_t size,
                               std::string_view name) {
  const int code = ::zip_error_code_zip(::zip_file_get_error(file));
  if (code == ZIP_ER_MEMORY)
    throw std::bad_alloc{};
  if (code == ZIP_ER_CRC)
    reject(name, what + " is corrupt: its checksum is wrong; fetch the file again");
  reject(name,
         what + " is corrupt: its data do not give the " + std::to_string(size) + " bytes announced"
           + (code == ZIP_ER_OK ? "" : std::string{" ("} + ::zip_file_strerror(file) + ")")
           + "; fetch the file again");
}

} // namespace

void zip_archive::closer::operator()(::zip* x) const noexcept {
  ::zip_discard(x);
}

zip_archive::zip_archive(std::span<const std::byte> bytes, std::string_view name)
  : name_(name), size_(bytes.size()), archive_(open_archive(bytes, name)) {
  const auto count = ::zip_get_num_entries(archive_.get(), 0);
  std::uint64_t left = size_;
  for (zip_int64_t i = 0; i < count; ++i) {
    members_.push_back(member_at(static_cast<std::uint64_t>(i)));
    if (members_.back().packed_size > left)
      reject(name_,
             member_text(members_.back().name) + " lies outside the file, which has "
               + std::to_string(size_) + " bytes, or overlaps another member; is it truncated?");
    left -= members_.back().packed_size;
  }
}

zip_member zip_archive::member_at(std::uint64_t index) const {
  zip_stat_t facts;
  ::zip_stat_init(&facts);
  if (::zip_stat_index(archive_.get(), index, ZIP_FL_ENC_RAW, &facts) != 0)
    reject(name_, "corrupt directory at member " + std::to_string(index));
  zip_member result{facts.name, index, facts.size, facts.comp_size};
  if (facts.encryption_method != ZIP_EM_NONE)
    reject(name_,
           member_text(result.name) + " is encrypted; expected an archive without a password");
  if (facts.comp_method != ZIP_CM_STORE && facts.comp_method != ZIP_CM_DEFLATE)
    reject(name_,
           member_text(result.name) + " is packed by method " + std::to_string(facts.comp_method)
             + "; expected 0 (stored) or 8 (deflated), as numpy.savez writes");
  return result;
}

std::vector<std::byte> zip_archive::read(const zip_member& member, std::uint64_t max_bytes) const {
  const std::string what = member_text(member.name);
  if (member.size > max_bytes)
    reject(name_,
           what + " unpacks to " + std::to_string(member.size) + " bytes, more than the "
             + std::to_string(max_bytes) + " accepted here");
  const open_member file{::zip_fopen_index(archive_.get(), member.index, 0)};
  if (!file)
    reject(name_,
           what + " does not begin where the directory says (" + ::zip_strerror(archive_.get())
             + "); is the file, which has " + std::to_string(size_) + " bytes, truncated?");
  std::vector<std::byte> result;
  result.reserve(static_cast<std::size_t>(std::min(member.size, 2 * member.packed_size)));
  std::vector<std::byte> piece(piece_bytes);
  zip_int64_t n = 0;
  while ((n = ::zip_fread(file.get(), piece.data(), piece.size())) > 0
         && static_cast<std::uint64_t>(n) <= member.size - result.size())
    result.insert(result.end(), piece.begin(), piece.begin() + n);
  if (n != 0 || result.size() != member.size)
    fail_to_read(file.get(), what, member.size, name_);
  return result;
}

} // namespace troupe
