#pragma once

#include <string>

namespace troupe::bench {

/// The installed OpenBLAS, loaded on demand, because troupe itself does not need it.
class openblas {
public:
  openblas();

  bool found() const noexcept { return sgemm_ != nullptr; }
  /// For example "OpenBLAS 0.3.21, SkylakeX".
  const std::string& name() const noexcept { return name_; }

  /// Calls cblas_sgemm with row-major matrices, on one thread.
  void multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a, int lda,
                const float* b, int ldb, float* c, int ldc) const;

  /// The value that the environment variable OPENBLAS_CORETYPE should get if it is not set; empty
  /// to leave it unset. OpenBLAS before 2024 mistakes the newest processors for very old ones, and
  /// is then slow on them.
  static const char* core_type();

private:
  using sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  sgemm sgemm_ = nullptr;
  std::string name_;
};

} // namespace troupe::bench
