#include "apps/troupe/bench/openblas.hpp"

#include <cstdlib>
#include <dlfcn.h>

namespace troupe::bench {

const char* openblas::core_type() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2"))
    return "Haswell";
#endif
  return "";
}

openblas::openblas() {
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  if (*core_type() != '\0')
    ::setenv("OPENBLAS_CORETYPE", core_type(), 0);
  void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return;
  sgemm_ = reinterpret_cast<sgemm>(::dlsym(library, "cblas_sgemm"));
  name_ = "OpenBLAS";
  // A build with OpenMP ignores the first variable.
  using setter = void (*)(int);
  if (const auto set = reinterpret_cast<setter>(::dlsym(library, "openblas_set_num_threads")))
    set(1);
  using text = const char* (*)();
  if (const auto configuration = reinterpret_cast<text>(::dlsym(library, "openblas_get_config"))) {
    const std::string words = configuration(); // "OpenBLAS 0.3.21 ..."
    name_ = words.substr(0, words.find(' ', words.find(' ') + 1));
  }
  if (const auto core = reinterpret_cast<text>(::dlsym(library, "openblas_get_corename")))
    name_ += std::string{", "} + core();
}

void openblas::multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a,
                        int lda, const float* b, int ldb, float* c, int ldc) const {
  constexpr int row_major = 101;
  const auto order = [](bool transposed) { return transposed ? 112 : 111; };
  sgemm_(row_major, order(transpose_a), order(transpose_b), m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}

} // namespace troupe::bench
