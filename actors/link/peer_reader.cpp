#include "actors/link/peer_reader.hpp"

#include "actors/link/sockets.hpp"

#include <cstdint>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

std::optional<unsigned> processor_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  // The process id of a process of another namespace is 0 here.
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
    return std::nullopt;
  cpu_set_t theirs;
  cpu_set_t own;
  if (::sched_getaffinity(peer.pid, sizeof theirs, &theirs) != 0 || CPU_COUNT(&theirs) != 1
      || ::sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) < 2)
    return std::nullopt;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &theirs) && CPU_ISSET(i, &own))
      return i;
  return std::nullopt;
}

peer_reader::peer_reader(int socket, unsigned processor, std::function<void()> on_data)
  : on_data_(std::move(on_data)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
    epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const auto file : {socket, bell_.get()}) {
    epoll_event x{};
    x.events = EPOLLIN | EPOLLET;
    x.data.fd = file;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, file, &x) != 0)
      fail_with("epoll");
  }
  thread_ = std::thread{[this, processor] { run(processor); }};
}

peer_reader::~peer_reader() {
  end();
  thread_.join();
}

void peer_reader::end() {
  ended_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(bell_.get(), &one, sizeof one);
}

void peer_reader::run(unsigned processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  ::sched_setaffinity(0, sizeof only, &only);
  while (!ended_) {
    epoll_event x{};
    if (::epoll_wait(epoll_.get(), &x, 1, -1) == 1 && x.data.fd != bell_.get())
      on_data_();
  }
  on_data_ = nullptr; // Releases the objects that the function holds: this reader may exist longer.
  finished_ = true;
}

} // namespace troupe
