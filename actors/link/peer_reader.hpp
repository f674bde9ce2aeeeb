#pragma once

#include "kernels/file_descriptor.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

namespace troupe {

/// If the process at the other end of a Unix socket is bound to one processor, returns this
/// processor. Returns nothing if the calling process may not run on this processor, or may run only
/// on this one. Also returns nothing if the system does not name the process at the other end,
/// because that process is in another process namespace.
std::optional<unsigned> processor_of_peer(int socket);

/// A thread that runs on one processor and waits for data of one socket.
class peer_reader {
public:
  /// Throws std::system_error if the system has no thread or descriptor left. If the thread cannot
  /// be bound to the processor, it runs on any processor.
  /// @param socket must stay open until end()
  /// @param on_data called on the new thread each time that the socket has new data, and when the
  /// peer closes the socket
  peer_reader(int socket, unsigned processor, std::function<void()> on_data);

  /// Calls end() and waits for the thread. Do not destroy the object on its own thread.
  ~peer_reader();

  peer_reader(const peer_reader&) = delete;
  peer_reader& operator=(const peer_reader&) = delete;

  /// Makes the thread end soon. Does not wait for it, so on_data may still be called once.
  /// Thread-safe.
  void end();

  /// True if the thread has ended. Thread-safe.
  bool finished() const noexcept { return finished_; }

private:
  void run(unsigned processor);

  std::function<void()> on_data_;
  file_descriptor bell_;
  file_descriptor epoll_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

} // namespace troupe
