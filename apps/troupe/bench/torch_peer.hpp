#pragma once

#include "apps/troupe/bench/python_process.hpp"
#include "apps/troupe/bench/runner.hpp"

#include <optional>
#include <string>

namespace troupe::bench {

/// A Python process that trains the same work with PyTorch. It is stopped (SIGSTOP) while it has no
/// work, so that its spinning threads take no processor time. It ends with this object.
class torch_peer {
public:
  /// Throws input_error if `python` (see `pythons`) has no PyTorch.
  torch_peer(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how);

  round run(std::size_t steps);

  const std::string& version() const noexcept { return version_; }
  const std::string& blas() const noexcept { return blas_; }

private:
  /// Throws input_error with the reason if the interpreter does not exist or has no PyTorch.
  void start(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how);

  std::optional<python_process> process_;
  std::string version_;
  std::string blas_;
};

} // namespace troupe::bench
