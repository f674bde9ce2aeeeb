// Two processes share memory. One of them is killed or stopped after each step of a transfer.

#include "actors/link/stream_channel.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(faults_while_lending)

namespace {

constexpr auto patience = 20s;
constexpr std::size_t size = std::size_t{1} << 20;
constexpr auto content = std::byte{7};

/// One end of a connection that lends payloads as shared memory.
struct end_point {
  codec system;
  std::shared_ptr<stream_channel> channel;
  std::vector<payload> received;
  std::string closed;

  explicit end_point(int socket) {
    buffer_pool::process().share_from(std::size_t{64} << 10);
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    stream_options how;
    how.lends = true;
    how.wake = [] {};
    channel = std::make_shared<stream_channel>(system.system(), file_descriptor{socket}, how);
    channel->listen({
      [this](const proto::Frame&, const caf::message& x) {
        received.push_back(x.get_as<payload>(1));
      },
      [this](const std::string& reason) { closed = reason; },
    });
  }

  void run() {
    channel->on_writable();
    while (channel->on_readable())
      ;
    channel->on_tick();
  }

  bool run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
      run();
      if (done())
        return true;
      if (std::chrono::steady_clock::now() > deadline)
        return false;
      std::this_thread::sleep_for(1ms);
    }
  }

  void lend(const payload& x) {
    channel->send({}, caf::make_message(proto::Segment{}, payload{x}));
  }
};

payload filled() {
  auto result = payload::allocate(size);
  std::fill_n(result.mutable_data(), size, content);
  return result;
}

bool intact(const payload& x) {
  return x.size() == size
    && std::ranges::all_of(x.bytes(), [](std::byte b) { return b == content; });
}

/// The steps that the second process makes, one after the other. A step returns false if it fails.
using steps = std::vector<std::function<bool(end_point&)>>;

/// The steps of the process that owns the memory: it lends the memory, and gets it back.
steps owner_steps(std::shared_ptr<payload> own) {
  return {
    [own](end_point&) { return (*own = filled()).size() == size; },
    [own](end_point& x) {
      x.lend(*own);
      return x.run_until([] { return true; });
    },
    [own](end_point& x) { return x.run_until([&] { return own->unique(); }); },
  };
}

/// The steps of the process that reads the memory: it receives, reads and releases it, and reports
/// this.
steps reader_steps() {
  return {
    [](end_point& x) { return x.run_until([&] { return !x.received.empty(); }); },
    [](end_point& x) { return intact(x.received.front()); },
    [](end_point& x) {
      x.received.clear();
      return true;
    },
    [](end_point& x) {
      x.run();
      return true;
    },
  };
}

#ifdef __SANITIZE_THREAD__
constexpr int own_threads = 2; // ThreadSanitizer adds a thread
#else
constexpr int own_threads = 1;
#endif

/// Waits until this process has no other threads. CAF's threads run for a moment longer than their
/// actor system. If one of them held a mutex of AddressSanitizer's allocator during fork(), this
/// mutex would stay locked in the new process.
void wait_for_ending_threads() {
  namespace fs = std::filesystem;
  const auto threads = [] {
    return std::distance(fs::directory_iterator{"/proc/self/task"}, fs::directory_iterator{});
  };
  while (threads() > own_threads)
    std::this_thread::sleep_for(1ms);
}

/// Calls `fork()` when this process has no other threads.
pid_t fork_alone() {
  wait_for_ending_threads();
  return ::fork();
}

/// A second process. It makes `before` steps, sends itself a signal, and then makes its other
/// steps.
class other_process {
public:
  other_process(const std::array<int, 2>& sockets, bool owns, std::size_t before, int signal)
    : pid_(fork_alone()) {
    ::close(sockets[pid_ == 0 ? 0 : 1]);
    if (pid_ != 0)
      return;
    bool good = true;
    {
      end_point x{sockets[1]};
      const auto todo = owns ? owner_steps(std::make_shared<payload>()) : reader_steps();
      for (std::size_t i = 0; i < todo.size() && good; ++i) {
        if (i == before)
          ::raise(signal);
        good = todo[i](x);
      }
      // The other end closes the connection.
      good = good && x.run_until([&] { return !x.closed.empty(); });
    }
    ::_exit(good ? 0 : 1);
  }

  ~other_process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;

  void wait_until_stopped() {
    int status = 0;
    BOOST_TEST_REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
    BOOST_TEST_REQUIRE(WIFSTOPPED(status));
  }

  void go_on() { ::kill(pid_, SIGCONT); }

  /// The exit code of the process; -1 if a signal ended it.
  int result() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

private:
  pid_t pid_;
};

std::array<int, 2> new_pair() {
  std::array<int, 2> result{};
  BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, result.data()) == 0);
  return result;
}

std::size_t open_files() {
  std::size_t result = 0;
  for (int i = 0; i < 1024; ++i)
    result += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return result;
}

constexpr std::size_t most_steps = 4;

} // namespace

// The reader is killed before each of its steps. The owner gets its memory back, at the latest when
// the reader is dead.
BOOST_AUTO_TEST_CASE(a_reader_that_is_killed) {
  for (std::size_t step = 0; step <= most_steps; ++step)
    BOOST_TEST_CONTEXT("before step " << step) {
      const auto sockets = new_pair();
      other_process reader{sockets, false, step, SIGKILL};
      end_point owner{sockets[0]};
      auto own = filled();
      owner.lend(own);
      BOOST_TEST(owner.run_until([&] { return own.unique(); }));
      if (step < most_steps) {
        BOOST_TEST(owner.run_until([&] { return !owner.closed.empty(); }));
        BOOST_TEST(reader.result() == -1);
      }
      owner.channel->release_socket();
      if (step == most_steps)
        BOOST_TEST(reader.result() == 0, "it was not killed");
    }
}

// The owner is killed. The reader can still read the borrowed memory.
BOOST_AUTO_TEST_CASE(an_owner_that_is_killed) {
  for (std::size_t step = 0; step < 3; ++step)
    BOOST_TEST_CONTEXT("before step " << step) {
      const auto sockets = new_pair();
      const auto before = open_files();
      {
        other_process owner{sockets, true, step, SIGKILL};
        end_point reader{sockets[0]};
        BOOST_TEST(reader.run_until([&] { return !reader.closed.empty(); }));
        BOOST_TEST(owner.result() == -1);
        BOOST_TEST(reader.received.size() == (step == 2 ? 1U : 0U));
        for (auto& x : reader.received)
          BOOST_TEST(intact(x));
        BOOST_TEST(reader.channel->finished() == reader.received.empty());
        reader.received.clear();
        BOOST_TEST(reader.channel->finished());
      }
      BOOST_TEST(open_files() + 2 == before, "the pair of sockets");
    }
}

// The reader is stopped, and nobody may write to the memory that it still reads. Later it continues
// where it stopped.
BOOST_AUTO_TEST_CASE(a_reader_that_is_stopped) {
  for (std::size_t step = 0; step < most_steps; ++step)
    BOOST_TEST_CONTEXT("before step " << step) {
      const auto sockets = new_pair();
      other_process reader{sockets, false, step, SIGSTOP};
      end_point owner{sockets[0]};
      auto own = filled();
      owner.lend(own);
      reader.wait_until_stopped();
      for (int i = 0; i < 50; ++i)
        owner.run();
      BOOST_TEST(!own.unique());
      BOOST_TEST(!owner.channel->keep_alive(1ns), "it is suspected");
      reader.go_on();
      BOOST_TEST(owner.run_until([&] { return own.unique(); }));
      BOOST_TEST(owner.closed == "");
      owner.channel->release_socket();
      BOOST_TEST(reader.result() == 0);
    }
}

BOOST_AUTO_TEST_CASE(an_owner_that_is_stopped) {
  for (std::size_t step = 0; step < 3; ++step)
    BOOST_TEST_CONTEXT("before step " << step) {
      const auto sockets = new_pair();
      other_process owner{sockets, true, step, SIGSTOP};
      end_point reader{sockets[0]};
      owner.wait_until_stopped();
      for (int i = 0; i < 50; ++i)
        reader.run();
      BOOST_TEST(reader.received.size() == (step == 2 ? 1U : 0U));
      owner.go_on();
      BOOST_TEST(reader.run_until([&] { return !reader.received.empty(); }));
      BOOST_TEST(intact(reader.received.front()));
      reader.received.clear();
      reader.run();
      BOOST_TEST(!reader.channel->finished());
      BOOST_TEST(reader.closed == "");
      // The reader closes the connection, and so the owner gets its memory back.
      reader.channel->end();
      reader.run();
      BOOST_TEST(owner.result() == 0);
    }
}

BOOST_AUTO_TEST_SUITE_END()
