#include "kernels/formats/npz.hpp"

#include "kernels/formats/npy.hpp"
#include "tests/support/input_errors.hpp"

#include <array>

#include <zlib.h>

BOOST_AUTO_TEST_SUITE(npz)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Makes a zip archive, which may be invalid on purpose.
class archive {
public:
  std::uint16_t flags = 0;
  std::uint16_t method_override = 0;
  std::uint32_t announced_extra = 0; ///< added to the size in the header
  bool zip64 = false;                ///< sizes and positions have 64 bits, as in files beyond 4 GiB
  std::uint64_t count_extra = 0;     ///< added to the number of members

  archive& add(const std::string& name, const std::vector<std::byte>& content, bool deflate) {
    const auto packed = deflate ? deflated(content) : content;
    const auto method =
      method_override != 0 ? method_override : static_cast<std::uint16_t>(deflate ? 8 : 0);
    const auto offset = static_cast<std::uint32_t>(out_.size());
    const auto checksum = static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const auto common = [&](std::string& to) {
      put(to, 20, 2), put(to, flags, 2), put(to, method, 2), put(to, 0, 4), put(to, checksum, 4);
      put(to, packed.size(), 4), put(to, content.size() + announced_extra, 4);
      put(to, name.size(), 2);
    };
    put(out_, 0x04034b50, 4);
    common(out_);
    put(out_, 4, 2); // the length of an extra field, as NumPy writes it
    out_ += name + "abcd";
    out_.append(reinterpret_cast<const char*>(packed.data()), packed.size());
    put(directory_, 0x02014b50, 4), put(directory_, 20, 2);
    common(directory_);
    put(directory_, zip64 ? 28 : 0, 2), put(directory_, 0, 2), put(directory_, 0, 2);
    put(directory_, 0, 2), put(directory_, 0, 4), put(directory_, zip64 ? beyond : offset, 4);
    directory_ += name;
    if (zip64) {
      directory_.replace(directory_.size() - name.size() - 46 + 20, 8, 8, '\xff');
      put(directory_, 1, 2), put(directory_, 24, 2);
      put(directory_, content.size() + announced_extra, 8), put(directory_, packed.size(), 8);
      put(directory_, offset, 8);
    }
    ++count_;
    return *this;
  }

  /// Lists the members in the directory a second time.
  archive& repeat() {
    directory_ += std::string{directory_};
    count_ *= 2;
    return *this;
  }

  std::vector<std::byte> bytes(const std::string& comment = "") const {
    std::string all = out_ + directory_;
    const auto count = count_ + count_extra;
    if (zip64) {
      const auto end = all.size();
      put(all, 0x06064b50, 4), put(all, 44, 8), put(all, 45, 2), put(all, 45, 2), put(all, 0, 8);
      put(all, count, 8), put(all, count, 8), put(all, directory_.size(), 8);
      put(all, out_.size(), 8);
      put(all, 0x07064b50, 4), put(all, 0, 4), put(all, end, 8), put(all, 1, 4);
    }
    put(all, 0x06054b50, 4), put(all, 0, 4);
    put(all, zip64 ? 0xffff : count, 2), put(all, zip64 ? 0xffff : count, 2);
    put(all, zip64 ? beyond : directory_.size(), 4), put(all, zip64 ? beyond : out_.size(), 4);
    put(all, comment.size(), 2);
    return bytes_of(all + comment);
  }

private:
  /// A 32-bit field with this value is only a sign: the number is in a zip64 record.
  static constexpr std::uint64_t beyond = 0xffffffff;

  static void put(std::string& to, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      to += static_cast<char>(value >> 8 * i & 0xff);
  }

  static std::vector<std::byte> deflated(const std::vector<std::byte>& content) {
    z_stream z{};
    ::deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::vector<std::byte> out(::deflateBound(&z, content.size()));
    z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(content.data()));
    z.avail_in = static_cast<uInt>(content.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    ::deflate(&z, Z_FINISH);
    out.resize(out.size() - z.avail_out);
    ::deflateEnd(&z);
    return out;
  }

  std::string out_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

std::vector<std::byte> array_of(float value, std::uint64_t n) {
  const std::vector<float> values(n, value);
  return write_npy(npy_type::f32, std::array{n}, std::as_bytes(std::span{values}));
}

constexpr std::uint64_t plenty = 1 << 20;

} // namespace

BOOST_AUTO_TEST_CASE(arrays_by_name) {
  const auto bytes = archive{}
                       .add("x.npy", array_of(2.5F, 3), false)
                       .add("readme.txt", bytes_of("hello"), false)
                       .add("y.npy", array_of(-1, 5000), true)
                       .add("none.npy", array_of(0, 0), true)
                       .bytes("a comment");
  const npz_file file{bytes, "a.npz"};
  const std::vector<std::string> names{"x", "y", "none"};
  BOOST_TEST(file.names() == names);
  const auto x = file.read("x", plenty);
  BOOST_TEST(parse_npy(x, "x").at(2) == 2.5);
  const auto y = file.read("y", plenty);
  BOOST_TEST(parse_npy(y, "y").size() == 5000u);
  BOOST_TEST(parse_npy(y, "y").at(4999) == -1);
  BOOST_TEST(parse_npy(file.read("none", plenty), "none").size() == 0u);
  BOOST_TEST(contains(error_of([&] { file.read("z", plenty); }), "a.npz: no array \"z\"; "));
}

BOOST_AUTO_TEST_CASE(archives_of_zip64) {
  auto large = archive{};
  large.zip64 = true;
  const auto bytes =
    large.add("x.npy", array_of(2.5F, 3), false).add("y.npy", array_of(-1, 5000), true).bytes();
  const npz_file file{bytes, "a.npz"};
  BOOST_TEST(parse_npy(file.read("x", plenty), "x").at(2) == 2.5);
  BOOST_TEST(parse_npy(file.read("y", plenty), "y").at(4999) == -1);
  // A size beyond 4 GiB is checked against the size of the file before anything is allocated.
  auto liar = archive{};
  liar.zip64 = true;
  liar.announced_extra = 0xffffffff;
  const auto wrong = liar.add("x.npy", array_of(1, 9), true).bytes();
  BOOST_TEST(contains(error_of([&] {
                        npz_file{wrong, "a.npz"}.read("x", plenty);
                      }),
                      "unpacks to 4294967459 bytes, more than the 1048576 accepted here"));
  // The number of members is checked against the size of the file, too.
  large.count_extra = std::uint64_t{1} << 40;
  BOOST_TEST(contains(error_of([&] {
                        npz_file{large.bytes(), "a.npz"};
                      }),
                      "its directory is corrupt"));
}

// Members may not overlap, because such archives can unpack to many times their size.
BOOST_AUTO_TEST_CASE(members_that_overlap) {
  const auto bytes = archive{}.add("x.npy", array_of(1, 100), false).repeat().repeat().bytes();
  BOOST_TEST(contains(error_of([&] {
                        npz_file{bytes, "a.npz"};
                      }),
                      "member \"x.npy\" lies outside the file, which has "));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_read) {
  const auto error = [](const std::vector<std::byte>& bytes, std::uint64_t max = plenty) {
    return error_of([&] { npz_file{bytes, "a.npz"}.read("x", max); });
  };
  const auto x = array_of(1, 100);
  BOOST_TEST(contains(error(bytes_of("no archive")), "a.npz: not a zip archive"));
  BOOST_TEST(contains(error({}), "a.npz: not a zip archive"));
  BOOST_TEST(contains(error(archive{}.bytes()), "without arrays"));
  auto other = archive{};
  other.method_override = 12;
  BOOST_TEST(contains(error(other.add("x.npy", x, false).bytes()), "packed by method 12"));
  auto locked = archive{};
  locked.flags = 1;
  BOOST_TEST(contains(error(locked.add("x.npy", x, false).bytes()), "encrypted"));
  BOOST_TEST(contains(error(archive{}.add("x.npy", x, true).bytes(), 10), "more than the 10"));
  for (const bool deflate : {false, true}) {
    auto liar = archive{};
    liar.announced_extra = 1'000'000'000;
    const auto bytes = liar.add("x.npy", x, deflate).bytes();
    BOOST_TEST(contains(error(bytes, 1ULL << 40), "corrupt"));
    auto short_one = archive{};
    short_one.announced_extra = static_cast<std::uint32_t>(-4);
    BOOST_TEST(contains(error(short_one.add("x.npy", x, deflate).bytes()), "corrupt"));
  }
  auto flipped = archive{}.add("x.npy", x, false).bytes();
  flipped[30 + 5 + 4 + 100] ^= std::byte{1};
  BOOST_TEST(contains(error(flipped), "checksum"));
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const auto bytes =
    archive{}.add("x.npy", array_of(1, 9), true).add("y.npy", array_of(2, 3), false).bytes();
  const auto parse = [](auto b) {
    const npz_file file{b, "x"};
    for (const auto& name : file.names())
      parse_npy(file.read(name, plenty), name);
  };
  BOOST_TEST(survive_hostile_variants(bytes, parse) == 0u);
  auto large = archive{};
  large.zip64 = true;
  survive_hostile_variants(large.add("x.npy", array_of(1, 9), true).bytes(), parse);
}

BOOST_AUTO_TEST_SUITE_END()
