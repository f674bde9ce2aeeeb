#include "kernels/cuda/cublas_lt.hpp"

#include "kernels/cuda/cuda_errors.hpp"
#include "kernels/cuda/epilogue.hpp"
#include "kernels/cuda/gemm_call.hpp"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

#define TROUPE_TEXT_OF(x) #x
#define TROUPE_TEXT(x) TROUPE_TEXT_OF(x)
/// The cublasLt of the CUDA toolkit with which this program is built.
constexpr const char* lt_library_name = "libcublasLt.so." TROUPE_TEXT(CUBLAS_VER_MAJOR);
#undef TROUPE_TEXT
#undef TROUPE_TEXT_OF

/// The largest number of kinds of products whose algorithms are kept. A training run has some
/// dozens of kinds for each number of rows.
constexpr std::size_t most_lt_choices = 4096;

struct close_lt_library {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};

cudaDataType_t lt_type_of(dtype x) {
  return x == dtype::bfloat16 ? CUDA_R_16BF : x == dtype::float16 ? CUDA_R_16F : CUDA_R_32F;
}

/// The largest power of two that divides the address, at most 256.
std::uint32_t alignment_of(const void* x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x) | 256U;
  return std::uint32_t{1} << std::countr_zero(address);
}

cublasLtEpilogue_t epilogue_of(const product& x) {
  if (x.after == operation::relu)
    return x.bias != nullptr ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return x.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

bool rounds_to_tf32(const product& x) {
  return x.tf32 && x.operands == dtype::float32;
}

/// The properties of a product on which its algorithm depends.
using kind_of_product = std::array<std::uint64_t, 11>;

kind_of_product kind_of(const product& x) {
  return {x.m,
          x.n,
          x.k,
          (x.transpose_a ? 1U : 0U) + (x.transpose_b ? 2U : 0U) + (rounds_to_tf32(x) ? 4U : 0U),
          static_cast<std::uint64_t>(x.operands) * 256 + static_cast<std::uint64_t>(x.result),
          static_cast<std::uint64_t>(epilogue_of(x)),
          alignment_of(x.a),
          alignment_of(x.b),
          alignment_of(x.c),
          x.bias != nullptr ? alignment_of(x.bias) : 0,
          x.addend != nullptr ? alignment_of(x.addend) : 0};
}

/// The matrix C of cublasLt, which computes D = op(A) op(B) + beta C. If there is no addend, beta
/// is 0, and C is not read.
const void* c_of(const product& x) {
  return x.addend != nullptr ? x.addend : x.c;
}

} // namespace

struct cublas_lt::choice {
  choice() = default;
  choice(const choice&) = delete;
  choice& operator=(const choice&) = delete;
  ~choice();

  library* owner = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  /// Empty if cublasLt has no algorithm for this kind of product.
  std::optional<cublasLtMatmulAlgo_t> algorithm;
};

struct cublas_lt::library {
  library() = default;
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    choices.clear();
    if (context != nullptr)
      destroy(context);
  }

  std::unique_ptr<void, close_lt_library> handle;
  cublasLtHandle_t context = nullptr;
  std::map<kind_of_product, choice> choices;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  decltype(&cublasLtGetStatusString) text_of = nullptr;

  template <class F>
  void find(const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(handle.get(), name));
    if (function == nullptr)
      throw device_error(std::string(lt_library_name) + " has no function " + name
                         + ": install the cuBLAS of this program's CUDA toolkit");
  }
  [[noreturn]] void fail(cublasStatus_t status, const std::string& what) const {
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
      throw device_error("cublasLt: " + what + ": " + explain_out_of_memory());
    throw device_error("cublasLt: " + what + ": " + text_of(status));
  }
  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail(status, what);
  }
  template <class T>
  void set(cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t which, const T& value) const {
    check(set_operation(x, which, &value, sizeof value), "a property of a product");
  }
  template <class T>
  void set(cublasLtMatmulPreference_t x, cublasLtMatmulPreferenceAttributes_t which,
           const T& value) const {
    check(set_preference(x, which, &value, sizeof value), "a property of an algorithm");
  }
  /// Describes a matrix that is column-major in memory, without gaps, with these numbers of rows
  /// and columns.
  void make(cublasLtMatrixLayout_t& x, dtype type, std::size_t rows, std::size_t columns) const {
    check(create_layout(&x, lt_type_of(type), rows, columns, static_cast<std::int64_t>(rows)),
          "a matrix");
  }

  void load();
  void describe(choice& to, const product& x) const;
  void choose(choice& to, const product& x) const;
};

cublas_lt::choice::~choice() {
  if (operation != nullptr)
    owner->destroy_operation(operation);
  for (auto* x : {a, b, c})
    if (x != nullptr)
      owner->destroy_layout(x);
}

/// The library stays loaded until the program ends, because threads of the library may still run.
void cublas_lt::library::load() {
  handle.reset(::dlopen(lt_library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!handle)
    throw device_error(std::string("cublasLt cannot be loaded: ") + ::dlerror()
                       + ". It is part of cuBLAS: install it, or name its folder in "
                         "LD_LIBRARY_PATH");
  find("cublasLtGetStatusString", text_of);
  find("cublasLtCreate", create);
  find("cublasLtDestroy", destroy);
  find("cublasLtMatmulDescCreate", create_operation);
  find("cublasLtMatmulDescDestroy", destroy_operation);
  find("cublasLtMatmulDescSetAttribute", set_operation);
  find("cublasLtMatrixLayoutCreate", create_layout);
  find("cublasLtMatrixLayoutDestroy", destroy_layout);
  find("cublasLtMatmulPreferenceCreate", create_preference);
  find("cublasLtMatmulPreferenceDestroy", destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", set_preference);
  find("cublasLtMatmulAlgoGetHeuristic", propose);
  find("cublasLtMatmul", multiply);
}

/// cublasLt is column-major, so it sees each row-major matrix as its transpose. Therefore, the
/// product is computed as c^T = op(b)^T op(a)^T, with swapped operands: b is the first operand. The
/// bias has one element for each row of c^T.
void cublas_lt::library::describe(choice& to, const product& x) const {
  const auto compute = rounds_to_tf32(x) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(create_operation(&to.operation, compute, CUDA_R_32F), "a product");
  const auto how = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(to.operation, CUBLASLT_MATMUL_DESC_TRANSA, how(x.transpose_b));
  set(to.operation, CUBLASLT_MATMUL_DESC_TRANSB, how(x.transpose_a));
  set(to.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(x));
  if (x.bias != nullptr) {
    set(to.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, lt_type_of(x.result));
    // The algorithm depends on the alignment of the bias. multiply() sets the address again.
    set(to.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
  }
  make(to.a, x.operands, x.transpose_b ? x.k : x.n, x.transpose_b ? x.n : x.k);
  make(to.b, x.operands, x.transpose_a ? x.m : x.k, x.transpose_a ? x.k : x.m);
  make(to.c, x.result, x.n, x.m);
}

void cublas_lt::library::choose(choice& to, const product& x) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(create_preference(&made), "a choice of an algorithm");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(destroy_preference)> preference{
    made, destroy_preference};
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, product_space_bytes);
  // If cublasLt divides a sum into parts, the parts are also added up in float32, and in a fixed
  // order.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(x.b));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(x.a));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c_of(x)));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(x.c));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const auto status =
    propose(context, to.operation, to.a, to.b, to.c, to.c, made, 1, &best, &found);
  if (status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS)
    to.algorithm = best.algo;
}

cublas_lt::cublas_lt(void* workspace)
  : library_(std::make_unique<library>()), workspace_(workspace) {
  library_->load();
  library_->check(library_->create(&library_->context), "it does not start");
}

cublas_lt::~cublas_lt() = default;

const cublas_lt::choice& cublas_lt::chosen(const product& x) {
  auto& all = library_->choices;
  const auto kind = kind_of(x);
  if (const auto found = all.find(kind); found != all.end())
    return found->second;
  if (all.size() >= most_lt_choices)
    all.clear();
  auto& result = all[kind];
  result.owner = library_.get();
  library_->describe(result, x);
  library_->choose(result, x);
  return result;
}

bool cublas_lt::fuses(const product& x) {
  return has_epilogue(x) && chosen(x).algorithm.has_value();
}

void cublas_lt::multiply(stream where, const product& x) {
  const auto& how = chosen(x);
  if (!how.algorithm)
    throw device_error("cublasLt: it has no algorithm for a product, " + to_string(x));
  auto& l = *library_;
  const float one = 1;
  const float beta = x.addend != nullptr ? 1 : 0;
  if (x.bias != nullptr)
    l.set(how.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
  const auto status = l.multiply(l.context, how.operation, &one, x.b, how.a, x.a, how.b, &beta,
                                 c_of(x), how.c, x.c, how.c, &*how.algorithm, workspace_,
                                 product_space_bytes, static_cast<cudaStream_t>(where.handle));
  if (status != CUBLAS_STATUS_SUCCESS)
    l.fail(status, "a product of matrices with an epilogue, " + to_string(x));
}

} // namespace troupe::cuda
