#include "kernels/cuda/cublas.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe::cuda {

namespace {

#define TROUPE_TEXT_OF(x) #x
#define TROUPE_TEXT(x) TROUPE_TEXT_OF(x)
/// The toolkit version of this build. Other versions may have different functions.
constexpr const char* library_name = "libcublas.so." TROUPE_TEXT(CUBLAS_VER_MAJOR);
#undef TROUPE_TEXT
#undef TROUPE_TEXT_OF

/// The size that cuBLAS recommends for Hopper, the largest for any device.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

struct close_library {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};

int to_int(std::size_t x) {
  if (x > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::invalid_argument("cublas: a matrix has too many rows or columns: "
                                + std::to_string(x));
  return static_cast<int>(x);
}

cudaDataType_t type_of(dtype x) {
  return x == dtype::bfloat16 ? CUDA_R_16BF : x == dtype::float16 ? CUDA_R_16F : CUDA_R_32F;
}

} // namespace

struct cublas::library {
  library() = default;
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    if (context != nullptr)
      destroy(context);
    cudaFree(workspace);
  }

  std::unique_ptr<void, close_library> handle;
  cublasHandle_t context = nullptr;
  void* workspace = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSgemmStridedBatched) sgemm = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  // The name is overloaded, with another type of the precision.
  using gemm_function = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                       int, int, const void*, const void*, cudaDataType, int,
                                       long long, const void*, cudaDataType, int, long long,
                                       const void*, void*, cudaDataType, int, long long, int,
                                       cublasComputeType_t, cublasGemmAlgo_t);
  gemm_function* gemm = nullptr;
  decltype(&cublasGetStatusString) text_of = nullptr;

  template <class F>
  void find(const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(handle.get(), name));
    if (function == nullptr)
      throw device_error(std::string(library_name) + " has no function " + name
                         + ": install the cuBLAS of this program's CUDA toolkit");
  }
  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw device_error(std::string("cuBLAS: ") + what + ": " + text_of(status));
  }
};

cublas::cublas(stream where) : library_(std::make_unique<library>()) {
  auto& l = *library_;
  l.handle.reset(::dlopen(library_name, RTLD_NOW | RTLD_LOCAL));
  if (!l.handle)
    throw device_error(std::string("cuBLAS cannot be loaded: ") + ::dlerror()
                       + ". Install it, or name its folder in LD_LIBRARY_PATH");
  l.find("cublasGetStatusString", l.text_of);
  l.find("cublasCreate_v2", l.create);
  l.find("cublasDestroy_v2", l.destroy);
  l.find("cublasSetStream_v2", l.set_stream);
  l.find("cublasSetWorkspace_v2", l.set_workspace);
  l.find("cublasSgemmStridedBatched", l.sgemm);
  l.find("cublasSetMathMode", l.set_math_mode);
  l.find("cublasGemmStridedBatchedEx", l.gemm);
  l.check(l.create(&l.context), "it does not start");
  l.check(l.set_stream(l.context, static_cast<cudaStream_t>(where.handle)), "stream");
  // Parts of a sum are added up in float32, too.
  l.check(
    l.set_math_mode(l.context,
                    static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH
                                              | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
    "precision");
  // set_stream resets the work space, so this comes after it. A CUDA graph cannot record memory
  // that cuBLAS allocates itself.
  if (cudaMalloc(&l.workspace, workspace_bytes) != cudaSuccess)
    throw device_error("cuBLAS: there is no memory for its work space of 32 MiB");
  l.check(l.set_workspace(l.context, l.workspace, workspace_bytes), "work space");
}

cublas::~cublas() = default;

void cublas::multiply(const product& x) {
  if (x.m == 0 || x.n == 0 || x.batch == 0)
    return;
  auto& l = *library_;
  const float one = 1;
  const float zero = 0;
  const auto how = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  // cuBLAS is column-major, so it sees each row-major matrix transposed. Therefore this computes
  // c^T = op(b)^T op(a)^T, with swapped operands.
  const auto a_columns = to_int(x.transpose_a ? x.m : x.k);
  const auto b_columns = to_int(x.transpose_b ? x.k : x.n);
  const auto a_stride = static_cast<long long>(x.m * x.k);
  const auto b_stride = static_cast<long long>(x.k * x.n);
  const auto c_stride = static_cast<long long>(x.m * x.n);
  constexpr const char* what = "a product of matrices";
  if (x.operands == dtype::float32) {
    l.check(l.sgemm(l.context, how(x.transpose_b), how(x.transpose_a), to_int(x.n), to_int(x.m),
                    to_int(x.k), &one, static_cast<const float*>(x.b), std::max(b_columns, 1),
                    b_stride, static_cast<const float*>(x.a), std::max(a_columns, 1), a_stride,
                    &zero, static_cast<float*>(x.c), to_int(x.n), c_stride, to_int(x.batch)),
            what);
    return;
  }
  l.check(l.gemm(l.context, how(x.transpose_b), how(x.transpose_a), to_int(x.n), to_int(x.m),
                 to_int(x.k), &one, x.b, type_of(x.operands), std::max(b_columns, 1), b_stride, x.a,
                 type_of(x.operands), std::max(a_columns, 1), a_stride, &zero, x.c,
                 type_of(x.result), to_int(x.n), c_stride, to_int(x.batch), CUBLAS_COMPUTE_32F,
                 CUBLAS_GEMM_DEFAULT),
          what);
}

} // namespace troupe::cuda
