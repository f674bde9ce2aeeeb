#pragma once

#include "apps/troupe/bench/runner.hpp"

#include <string>

#include <sys/types.h>

namespace troupe::bench {

/// A Python process that trains the same work with PyTorch. It is stopped (SIGSTOP) while it has
/// nothing to do, so that threads of it that wait busily take no time from others; it ends with
/// this object.
class torch_peer {
public:
  /// Throws input_error where `python` (or, if that is empty, python3 on the PATH and then
  /// /usr/bin/python3) has no PyTorch.
  torch_peer(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how);
  ~torch_peer();
  torch_peer(const torch_peer&) = delete;
  torch_peer& operator=(const torch_peer&) = delete;

  round run(std::size_t steps);

  const std::string& version() const noexcept { return version_; }
  const std::string& blas() const noexcept { return blas_; }

private:
  /// False, with a reason, where there is no such interpreter or it has no PyTorch.
  bool start(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how, std::string& reason);
  void end();
  void tell(const void* bytes, std::size_t size);
  void tell(const std::string& text) { tell(text.data(), text.size()); }
  std::string answer();

  pid_t pid_ = 0;
  int socket_ = -1;
  std::string buffer_;
  std::string version_;
  std::string blas_;
};

} // namespace troupe::bench
