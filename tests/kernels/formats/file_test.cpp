#include "kernels/formats/file.hpp"

#include "kernels/formats/gzip.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(file)

using namespace troupe;
using namespace troupe::test;

namespace {

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  file_writer file{path};
  file.write(bytes);
  file.finish();
}

/// The text of the std::system_error that writing a file throws, or "(no error)".
std::string write_error(const std::filesystem::path& path) {
  try {
    write_file(path, bytes_of("x"));
  } catch (const std::system_error& error) {
    return error.what();
  }
  return "(no error)";
}

std::ptrdiff_t files_in(const temporary_directory& folder) {
  return std::distance(std::filesystem::directory_iterator{folder.path()}, {});
}

} // namespace

BOOST_AUTO_TEST_CASE(round_trip) {
  const temporary_directory folder;
  for (const std::size_t n : {0, 1, 4095, 4096, 4097, 300'000}) {
    const std::vector<std::byte> bytes(n, std::byte{42});
    write_file(folder / "x", bytes);
    BOOST_TEST((read_file(folder / "x") == bytes));
    BOOST_TEST((read_file(folder / "x", n) == bytes));
  }
  BOOST_TEST(files_in(folder) == 1, "no other file is left behind");
}

BOOST_AUTO_TEST_CASE(written_files) {
  const temporary_directory folder;
  // An earlier process with the same process ID has left a temporary file behind. It must not be in
  // the way.
  const auto old = ".tmp-x-" + std::to_string(::getpid()) + "-0";
  std::ofstream{folder / old} << "old";
  {
    const file_writer given_up{folder / "x"};
    BOOST_TEST(files_in(folder) == 2);
  }
  BOOST_TEST(files_in(folder) == 1);
  const auto before = ::umask(027);
  write_file(folder / "x", bytes_of("new"));
  ::umask(before);
  BOOST_TEST((read_file(folder / old) == bytes_of("old")));
  BOOST_TEST((read_file(folder / "x") == bytes_of("new")));
  BOOST_TEST((std::filesystem::status(folder / "x").permissions() == std::filesystem::perms{0640}));
}

BOOST_AUTO_TEST_CASE(gzip_by_content) {
  const temporary_directory folder;
  write_file(folder / "plain.gz", bytes_of("not compressed"));
  write_file(folder / "packed", gzip(bytes_of("compressed")));
  BOOST_TEST((read_plain_or_gzip(folder / "plain.gz") == bytes_of("not compressed")));
  BOOST_TEST((read_plain_or_gzip(folder / "packed") == bytes_of("compressed")));
}

BOOST_AUTO_TEST_CASE(pipes_and_devices) {
  BOOST_TEST(read_file("/dev/null").empty());
  BOOST_TEST(contains(error_of([] { read_file("/dev/zero", 10'000); }), "longer than the 10000"));
}

BOOST_AUTO_TEST_CASE(errors_name_the_file) {
  const temporary_directory folder;
  const auto missing = (folder / "missing").string();
  BOOST_TEST(
    contains(error_of([&] { read_file(missing); }), missing + ": cannot open: No such file"));
  BOOST_TEST(contains(error_of([&] { read_file(folder.path()); }), "is a directory"));
  write_file(folder / "x", bytes_of("12345"));
  BOOST_TEST(contains(error_of([&] { read_file(folder / "x", 4); }), "longer than the 4 bytes"));
  BOOST_TEST(write_error(folder / "no/x")
             == "cannot create a file beside " + (folder / "no/x").string()
               + ": No such file or directory");
}

// As in a shell, only a pattern that begins with a dot finds hidden files.
BOOST_AUTO_TEST_CASE(files_of_a_pattern) {
  const temporary_directory folder;
  for (const auto* name : {"x-2.npy", "x-1.npy", ".x-1.npy", ".tmp-x-3.npy-1-0", "y-1.npy"})
    write_file(folder / name, bytes_of("x"));
  const auto found = [&](const char* pattern) {
    std::string result;
    for (const auto& file : files_of(folder / pattern))
      result += file.filename().string() + ' ';
    return result;
  };
  BOOST_TEST(found("*") == "x-1.npy x-2.npy y-1.npy ");
  BOOST_TEST(found("*.npy") == "x-1.npy x-2.npy y-1.npy ");
  BOOST_TEST(contains(error_of([&] { found("?x-*"); }), "no file has such a name"));
  BOOST_TEST(found(".x-*") == ".x-1.npy ");
  BOOST_TEST(found("x-2.npy") == "x-2.npy ");
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_old_file) {
  const temporary_directory folder;
  std::filesystem::create_directory(folder / "target");
  std::ofstream(folder / "target/inside") << "kept";
  BOOST_TEST(contains(write_error(folder / "target"), "cannot replace "));
  BOOST_TEST(std::filesystem::exists(folder / "target/inside"));
  BOOST_TEST(files_in(folder) == 1);
}

// A compressed megabyte may contain a gigabyte of zeros. It must be refused before it takes memory.
BOOST_AUTO_TEST_CASE(a_file_that_is_nothing_but_zeros) {
  const temporary_directory folder;
  const auto member = gzip(std::vector<std::byte>(16 << 20));
  std::vector<std::byte> packed;
  for (int i = 0; i < 17; ++i)
    packed.insert(packed.end(), member.begin(), member.end());
  write_file(folder / "zeros.gz", packed);
  BOOST_TEST(contains(error_of([&] { read_plain_or_gzip(folder / "zeros.gz"); }),
                      "zeros.gz: decompresses to more than the 268435456 bytes accepted here"));
  // A compressed file is accepted if its contents are small, or at most a hundred times as long as
  // the file.
  packed.resize(16 * member.size());
  write_file(folder / "less.gz", packed);
  BOOST_TEST(read_plain_or_gzip(folder / "less.gz").size() == 268435456U);
}

BOOST_AUTO_TEST_SUITE_END()
