#pragma once

#include "actors/link/stream_channel.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>

namespace troupe::test {

struct arrived {
  proto::Frame frame;
  caf::message content;

  const payload& data() const { return content.get_as<payload>(content.size() - 1); }
};

inline payload patterned(std::size_t size, unsigned seed = 1) {
  auto result = payload::allocate(size);
  for (std::size_t i = 0; i < size; ++i)
    result.mutable_data()[i] = static_cast<std::byte>((i + seed) * 2654435761U >> 13);
  return result;
}

inline bool equal(const payload& a, const payload& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

/// One end of a connection. It handles events only when the test calls run().
struct end_point {
  std::shared_ptr<stream_channel> channel;
  std::vector<arrived> messages;
  std::string closed;
  int ticks_wanted = 0;

  end_point(caf::actor_system& sys, int socket, bool lends, std::uint64_t max_bytes,
            bool resumes = false) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    stream_options how;
    how.lends = lends;
    how.resumes = resumes;
    how.limits.max_bytes = max_bytes;
    how.wake = [this] { ++ticks_wanted; };
    channel = std::make_shared<stream_channel>(sys, file_descriptor{socket}, how);
  }

  void listen() {
    channel->listen({
      [this](const proto::Frame& frame, caf::message content) {
        messages.push_back({frame, std::move(content)});
      },
      [this](const std::string& reason) { closed = reason; },
    });
  }

  /// Does what a thread that waits for the socket would do.
  void run() {
    if (channel->socket() < 0)
      return;
    channel->on_writable();
    while (channel->on_readable())
      ;
    if (std::exchange(ticks_wanted, 0) > 0)
      channel->on_tick();
  }

  void send(std::uint64_t id, payload data) {
    proto::Frame frame;
    frame.set_id(id);
    proto::Segment header;
    header.set_step(id);
    channel->send(frame, caf::make_message(std::move(header), std::move(data)));
  }
};

struct connection {
  codec system;
  std::array<int, 2> sockets{};
  std::unique_ptr<end_point> a;
  std::unique_ptr<end_point> b;

  explicit connection(bool lends, std::uint64_t max_bytes = std::uint64_t{1} << 36) {
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
    a = std::make_unique<end_point>(system.system(), sockets[0], lends, max_bytes);
    b = std::make_unique<end_point>(system.system(), sockets[1], lends, max_bytes);
    a->listen();
    b->listen();
  }

  void run() {
    for (int i = 0; i < 200; ++i) {
      a->run();
      b->run();
    }
  }
};

struct with_shared_memory {
  with_shared_memory() { buffer_pool::process().share_from(std::size_t{64} << 10); }
};

/// Number of open file descriptors of this process.
inline std::size_t open_files() {
  std::size_t result = 0;
  for (int i = 0; i < 1024; ++i)
    result += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return result;
}

} // namespace troupe::test
