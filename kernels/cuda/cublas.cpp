#include "kernels/cuda/cublas.hpp"

#include "kernels/cuda/cuda_errors.hpp"
#include "kernels/cuda/gemm_call.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

namespace troupe::cuda {

namespace {

#define TROUPE_TEXT_OF(x) #x
#define TROUPE_TEXT(x) TROUPE_TEXT_OF(x)
/// The cuBLAS of the CUDA toolkit with which this program is built. Other versions may have
/// different functions.
constexpr const char* library_name = "libcublas.so." TROUPE_TEXT(CUBLAS_VER_MAJOR);
#undef TROUPE_TEXT
#undef TROUPE_TEXT_OF

cudaDataType_t type_of(dtype x) {
  return x == dtype::bfloat16 ? CUDA_R_16BF : x == dtype::float16 ? CUDA_R_16F : CUDA_R_32F;
}

/// The functions of the library. The library stays loaded until the program ends: the next device
/// needs it again, and threads of the library may still run.
struct library {
  library() : handle(::dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle == nullptr)
      throw device_error(std::string("cuBLAS cannot be loaded: ") + ::dlerror()
                         + ". Install it, or name its folder in LD_LIBRARY_PATH");
    find("cublasGetStatusString", text_of);
    find("cublasCreate_v2", create);
    find("cublasDestroy_v2", destroy);
    find("cublasSetStream_v2", set_stream);
    find("cublasSetWorkspace_v2", set_workspace);
    find("cublasSetMathMode", set_math_mode);
    find("cublasGemmStridedBatchedEx", gemm);
  }

  void* handle;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  // cublasGemmStridedBatchedEx has two overloads, so decltype cannot find its type. The other
  // overload has a different type for the precision.
  using gemm_function = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                       int, int, const void*, const void*, cudaDataType, int,
                                       long long, const void*, cudaDataType, int, long long,
                                       const void*, void*, cudaDataType, int, long long, int,
                                       cublasComputeType_t, cublasGemmAlgo_t);
  gemm_function* gemm = nullptr;
  decltype(&cublasGetStatusString) text_of = nullptr;

  [[noreturn]] void fail(cublasStatus_t status, const std::string& what) const {
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
      throw device_error("cuBLAS: " + what + ": " + explain_out_of_memory());
    throw device_error("cuBLAS: " + what + ": " + text_of(status));
  }
  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail(status, what);
  }

  /// Checks the status of `create`. If the GPU is nearly full, cuBLAS may not name the reason.
  void check_start(cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_NOT_INITIALIZED)
      throw device_error(std::string("cuBLAS: it does not start: ") + text_of(status)
                         + ". Perhaps the GPU is full: " + explain_out_of_memory());
    check(status, "it does not start");
  }

private:
  template <class F>
  void find(const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    if (function == nullptr)
      throw device_error(std::string(library_name) + " has no function " + name
                         + ": install the cuBLAS of this program's CUDA toolkit");
  }
};

/// Loads the library at the first call.
const library& loaded() {
  static const library result;
  return result;
}

} // namespace

struct cublas::context {
  context() = default;
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() {
    if (handle != nullptr)
      from.destroy(handle);
  }

  const library& from = loaded();
  cudaStream_t where = nullptr;
  cublasHandle_t handle = nullptr;
};

cublas::cublas(stream where, void* workspace) : context_(std::make_unique<context>()) {
  auto& c = *context_;
  const auto& l = c.from;
  c.where = static_cast<cudaStream_t>(where.handle);
  l.check_start(l.create(&c.handle));
  l.check(l.set_stream(c.handle, c.where), "stream");
  // If cuBLAS divides a sum into parts, the parts are also added up in float32.
  l.check(
    l.set_math_mode(c.handle,
                    static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH
                                              | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
    "precision");
  // set_stream resets the work space, so the work space is set after it. cuBLAS must not allocate
  // memory itself, because a CUDA graph cannot record this.
  if (workspace != nullptr)
    l.check(l.set_workspace(c.handle, workspace, product_space_bytes), "work space");
}

cublas::~cublas() = default;

void cublas::multiply(const product& x) {
  if (x.m == 0 || x.n == 0 || x.batch == 0)
    return;
  const auto& c = *context_;
  if (x.k == 0) { // cuBLAS might not write 0 to c
    check_cuda(cudaMemsetAsync(x.c, 0, x.batch * x.m * x.n * size_of(x.result), c.where),
               "a product without terms");
    return;
  }
  const float one = 1;
  const float zero = 0;
  const auto how = [](const gemm_call::matrix& y) {
    return y.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const bool tf32 = x.tf32 && x.operands == dtype::float32;
  const auto type = type_of(x.operands);
  const auto call = gemm_of(x);
  const auto status =
    c.from.gemm(c.handle, how(call.a), how(call.b), call.m, call.n, call.k, &one, call.a.data, type,
                call.a.lead, call.a.stride, call.b.data, type, call.b.lead, call.b.stride, &zero,
                call.c, type_of(x.result), call.c_lead, call.c_stride, call.batch,
                tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    c.from.fail(status, "a product of matrices, " + to_string(x));
}

} // namespace troupe::cuda
