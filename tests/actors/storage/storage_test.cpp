#include "actors/storage/storage.hpp"

#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(storage)

namespace {

/// Root may write to any directory. So if root runs the tests, this process becomes another user,
/// who owns the directory, until this object is destroyed.
class another_user {
public:
  explicit another_user(const std::filesystem::path& directory) {
    if (!root_)
      return;
    BOOST_TEST_REQUIRE(::chown(directory.c_str(), nobody, nobody) == 0);
    BOOST_TEST_REQUIRE(::seteuid(nobody) == 0);
  }
  ~another_user() {
    if (root_)
      BOOST_TEST(::seteuid(0) == 0);
  }
  another_user(const another_user&) = delete;
  another_user& operator=(const another_user&) = delete;

private:
  static constexpr ::uid_t nobody = 65534;
  bool root_ = ::geteuid() == 0;
};

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::size_t files_in(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{directory},
                                                std::filesystem::directory_iterator{}));
}

/// The text of the std::system_error that `body` throws, or "(no error)".
template <class Body>
std::string system_error_of(Body&& body) {
  try {
    body();
  } catch (const std::system_error& e) {
    return e.what();
  }
  return "(no error)";
}

/// While it exists, files cannot grow beyond this number of bytes, as on a full disk (but with
/// EFBIG instead of ENOSPC). Unlike a read-only directory, this also works for root.
class small_disk {
public:
  explicit small_disk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  }
  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;
  ~small_disk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int);
};

} // namespace

BOOST_AUTO_TEST_CASE(files_are_replaced_as_a_whole) {
  const temporary_directory directory;
  disk_storage disk;
  disk.prepare(directory / "a/b");
  BOOST_TEST(files_in(directory / "a/b") == 0u);
  const auto file = directory / "a/b/weights";
  disk.replace(file, bytes_of("the first contents"));
  BOOST_TEST(contents_of(file) == "the first contents");
  disk.replace(file, bytes_of("second"));
  BOOST_TEST(contents_of(file) == "second");
  disk.replace(file, {});
  BOOST_TEST(contents_of(file).empty());
  BOOST_TEST(files_in(directory / "a/b") == 1u, "nothing but the file");
}

// tidy() removes what an interrupted process left behind, and nothing else: an output directory may
// have files of the user.
BOOST_AUTO_TEST_CASE(only_remains_are_removed) {
  const temporary_directory directory;
  disk_storage disk;
  const auto ended = ::fork();
  if (ended == 0)
    ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  const auto of_process = [](std::string_view name, pid_t process) {
    return std::string{name} + std::to_string(process) + "-0";
  };
  const std::vector<std::string> files{".tmp-mine", ".tmp-mine-x-0", ".probe", ".tmp-1-0",
                                       of_process(".tmp-weights-", ::getppid())};
  for (const auto& name : files)
    std::ofstream{directory / name} << "mine";
  for (const auto* name : {".tmp-mine-1-0 d", ".old-mine"})
    std::filesystem::create_directory(directory / name);
  for (const auto process : {ended, ::getpid()})
    std::ofstream{directory / of_process(".tmp-weights.safetensors-", process)} << "half";
  for (const auto* name : {".tmp-step-7", ".old-step-8"})
    std::filesystem::create_directory(directory / name);
  disk.prepare(directory.path());
  disk.tidy(directory.path(), "");
  BOOST_TEST(files_in(directory.path()) == files.size() + 4);
  disk.tidy(directory.path(), "step-");
  BOOST_TEST(files_in(directory.path()) == files.size() + 2);
  for (const auto& name : files)
    BOOST_TEST(contents_of(directory / name) == "mine", name);
}

BOOST_AUTO_TEST_CASE(a_reader_never_sees_a_part) {
  const temporary_directory directory;
  disk_storage disk;
  const auto file = directory / "weights";
  disk.replace(file, bytes_of("old"));
  // A file is replaced, not overwritten. So a process that has opened the old file can still read
  // it.
  std::ifstream reader{file};
  disk.replace(file, bytes_of("new contents"));
  std::string seen;
  reader >> seen;
  BOOST_TEST(seen == "old");
}

BOOST_AUTO_TEST_CASE(a_full_disk_keeps_the_old_contents) {
  const temporary_directory directory;
  disk_storage disk;
  const auto file = directory / "weights";
  disk.replace(file, bytes_of("old"));
  std::string text;
  {
    const small_disk limit{1000};
    text = system_error_of([&] { disk.replace(file, bytes_of(std::string(5000, 'x'))); });
  }
  BOOST_TEST(contains(text, "cannot write"));
  BOOST_TEST(contains(text, file.string()));
  BOOST_TEST(contains(text, "File too large"));
  BOOST_TEST(contents_of(file) == "old");
  BOOST_TEST(files_in(directory.path()) == 1u, "half a file is not left behind");
  disk.replace(file, bytes_of("new"));
  BOOST_TEST(contents_of(file) == "new");
}

BOOST_AUTO_TEST_CASE(a_target_that_cannot_be_replaced) {
  const temporary_directory directory;
  disk_storage disk;
  std::filesystem::create_directories(directory / "weights/inside");
  const auto text = system_error_of([&] { disk.replace(directory / "weights", bytes_of("x")); });
  BOOST_TEST(contains(text, "cannot replace"));
  BOOST_TEST(contains(text, (directory / "weights").string()));
  BOOST_TEST(files_in(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(directories_that_are_missing_or_none) {
  const temporary_directory directory;
  disk_storage disk;
  const auto missing = directory / "missing/weights";
  const auto text = system_error_of([&] { disk.replace(missing, bytes_of("x")); });
  BOOST_TEST(contains(text, missing.string()));
  BOOST_TEST(contains(text, "No such file or directory"));
  BOOST_TEST(!std::filesystem::exists(directory / "missing"));
  disk.replace(directory / "file", bytes_of("x"));
  BOOST_TEST(contains(system_error_of([&] { disk.prepare(directory / "file/out"); }),
                      (directory / "file/out").string()));
  BOOST_TEST(contains(system_error_of([&] { disk.prepare(directory / "file"); }),
                      (directory / "file").string()));
  BOOST_TEST(contains(system_error_of([&] { disk.append_line(directory / "missing/log", "x"); }),
                      (directory / "missing/log").string()));
}

BOOST_AUTO_TEST_CASE(directories_that_cannot_be_written_to) {
  const temporary_directory directory;
  const another_user owner{directory.path()};
  disk_storage disk;
  const auto out = directory / "out";
  std::filesystem::create_directory(out);
  disk.replace(out / "weights", bytes_of("old"));
  std::filesystem::permissions(
    out, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  BOOST_TEST(contains(system_error_of([&] { disk.prepare(out); }), out.string()));
  BOOST_TEST(contains(system_error_of([&] { disk.replace(out / "weights", bytes_of("new")); }),
                      (out / "weights").string()));
  BOOST_TEST(contents_of(out / "weights") == "old");
  std::filesystem::permissions(out, std::filesystem::perms::owner_all);
}

BOOST_AUTO_TEST_CASE(a_directory_is_for_one_run) {
  const temporary_directory directory;
  disk_storage first;
  first.lock(directory.path());
  {
    disk_storage second;
    BOOST_TEST(contains(system_error_of([&] { second.lock(directory.path()); }),
                        "another run writes to " + directory.path().string()));
    first.unlock();
    second.lock(directory.path());
    BOOST_TEST(!system_error_of([&] { first.lock(directory.path()); }).empty());
  }
  first.lock(directory.path());
}

BOOST_AUTO_TEST_CASE(a_pipe_is_no_file) {
  const temporary_directory directory;
  disk_storage disk;
  const auto pipe = directory / "checkpoint.json";
  BOOST_TEST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  BOOST_TEST(contains(system_error_of([&] { disk.read(pipe); }), pipe.string()));
}

BOOST_AUTO_TEST_CASE(lines_are_appended) {
  const temporary_directory directory;
  disk_storage disk;
  memory_storage memory;
  const auto file = directory / "metrics.jsonl";
  for (troupe::storage* s :
       {static_cast<troupe::storage*>(&disk), static_cast<troupe::storage*>(&memory)}) {
    s->append_line(file, "one");
    s->append_line(file, "");
    s->append_line(file, "three");
  }
  BOOST_TEST(contents_of(file) == "one\n\nthree\n");
  BOOST_TEST(memory.contents(file) == "one\n\nthree\n");
}

BOOST_AUTO_TEST_CASE(half_a_line_is_taken_back) {
  const temporary_directory directory;
  disk_storage disk;
  const auto file = directory / "metrics.jsonl";
  disk.append_line(file, "one");
  {
    const small_disk limit{100};
    BOOST_TEST(contains(system_error_of([&] { disk.append_line(file, std::string(500, 'x')); }),
                        "cannot write"));
  }
  disk.append_line(file, "two");
  BOOST_TEST(contents_of(file) == "one\ntwo\n");
}

BOOST_AUTO_TEST_CASE(a_disk_without_room_is_refused) {
  const temporary_directory directory;
  disk_storage disk;
  {
    // Even a full disk has room for an empty file, so prepare() must write some bytes.
    const small_disk limit{100};
    BOOST_TEST(contains(system_error_of([&] { disk.prepare(directory / "out"); }),
                        (directory / "out").string()));
  }
  BOOST_TEST(files_in(directory / "out") == 0u);
}

BOOST_AUTO_TEST_CASE(files_in_memory) {
  memory_storage memory;
  memory.prepare("out");
  BOOST_TEST(memory.contents("out/weights").empty());
  memory.replace("out/weights", bytes_of("first"));
  memory.replace("out/weights", bytes_of("2nd"));
  memory.replace("out/other", {});
  BOOST_TEST(memory.contents("out/weights") == "2nd");
  BOOST_TEST(memory.contents("out/other").empty());
}

BOOST_AUTO_TEST_SUITE_END()
