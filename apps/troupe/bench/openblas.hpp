#pragma once

#include <string>

namespace troupe::bench {

/// The OpenBLAS that is installed on this machine. It is loaded at run time, because troupe itself
/// does not need it.
class openblas {
public:
  openblas();

  bool found() const noexcept { return sgemm_ != nullptr; }
  /// The name, version and processor type, for example "OpenBLAS 0.3.21, SkylakeX".
  const std::string& name() const noexcept { return name_; }

  /// Calls cblas_sgemm with row-major matrices, on one thread.
  void multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a, int lda,
                const float* b, int ldb, float* c, int ldc) const;

  /// The value for the environment variable OPENBLAS_CORETYPE, for use if the variable is not set.
  /// Empty if it should stay unset. OpenBLAS before 2024 mistakes the newest processors for very
  /// old processors, and is then slow.
  static const char* core_type();

private:
  using sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  sgemm sgemm_ = nullptr;
  std::string name_;
};

} // namespace troupe::bench
