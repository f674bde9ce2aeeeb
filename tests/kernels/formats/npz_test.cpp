#include "kernels/formats/npz.hpp"

#include "kernels/formats/npy.hpp"
#include "tests/support/input_errors.hpp"

#include <array>

#include <zlib.h>

BOOST_AUTO_TEST_SUITE(npz)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Writes a valid or invalid zip archive.
class archive {
public:
  std::uint16_t flags = 0;
  std::uint16_t method_override = 0;
  std::uint32_t announced_extra = 0; ///< added to the size in the header

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
    put(out_, 4, 2); // An extra field, like NumPy's.
    out_ += name + "abcd";
    out_.append(reinterpret_cast<const char*>(packed.data()), packed.size());
    put(directory_, 0x02014b50, 4), put(directory_, 20, 2);
    common(directory_);
    put(directory_, 0, 2), put(directory_, 0, 2), put(directory_, 0, 2), put(directory_, 0, 2);
    put(directory_, 0, 4), put(directory_, offset, 4);
    directory_ += name;
    ++count_;
    return *this;
  }

  std::vector<std::byte> bytes(const std::string& comment = "") const {
    std::string all = out_ + directory_;
    put(all, 0x06054b50, 4), put(all, 0, 4), put(all, count_, 2), put(all, count_, 2);
    put(all, directory_.size(), 4), put(all, out_.size(), 4), put(all, comment.size(), 2);
    return bytes_of(all + comment);
  }

private:
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

BOOST_AUTO_TEST_CASE(what_cannot_be_read) {
  const auto error = [](const std::vector<std::byte>& bytes, std::uint64_t max = plenty) {
    return error_of([&] { npz_file{bytes, "a.npz"}.read("x", max); });
  };
  const auto x = array_of(1, 100);
  BOOST_TEST(contains(error(bytes_of("no archive")), "a.npz: not a zip archive"));
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
}

BOOST_AUTO_TEST_SUITE_END()
