#include "tests/kernels/cuda/fake_cublas_lt.hpp"

#include "kernels/narrow_float.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

struct operation_description {
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  const void* bias = nullptr;
  bool tf32 = false;
};

struct matrix_description {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t leading;
};

struct preference_description {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

/// The contents of the opaque type of an algorithm.
struct algorithm_description {
  std::uint64_t magic = 0;
  std::uint64_t workspace = 0;
  std::uint32_t alignments[4] = {};
};
constexpr std::uint64_t magic_number = 0x6c74616c676f;

template <class T>
T& as(void* x) {
  return *static_cast<T*>(x);
}
template <class T>
const T& as(const void* x) {
  return *static_cast<const T*>(x);
}

template <class Opaque, class T>
cublasStatus_t make(Opaque** to, const T& value) {
  static_assert(sizeof(Opaque) >= sizeof(T));
  auto* const made = new Opaque{};
  std::memcpy(made, &value, sizeof value);
  *to = made;
  ++fake_cublas_lt_counts().alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque>
cublasStatus_t destroy(Opaque* x) {
  delete x;
  --fake_cublas_lt_counts().alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t set(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of_type(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

float load(cudaDataType_t type, const void* x, std::size_t i) {
  if (type == CUDA_R_16BF)
    return widened(static_cast<const bfloat16*>(x)[i]);
  if (type == CUDA_R_16F)
    return widened(static_cast<const float16*>(x)[i]);
  return static_cast<const float*>(x)[i];
}

void store(cudaDataType_t type, void* to, std::size_t i, float x) {
  if (type == CUDA_R_16BF)
    static_cast<bfloat16*>(to)[i] = rounded_to<bfloat16>(x);
  else if (type == CUDA_R_16F)
    static_cast<float16*>(to)[i] = rounded_to<float16>(x);
  else
    static_cast<float*>(to)[i] = x;
}

/// Element (i, j) of op(x). The matrix is column-major.
float element(const matrix_description& x, const void* data, bool transposed, std::size_t i,
              std::size_t j) {
  return load(x.type, data,
              transposed ? j + i * static_cast<std::size_t>(x.leading)
                         : i + j * static_cast<std::size_t>(x.leading));
}

bool aligned(const void* x, std::uint32_t to) {
  return reinterpret_cast<std::uintptr_t>(x) % to == 0;
}

/// True if cublasLt accepts these types and shapes together.
bool fits(const operation_description& how, const matrix_description& a,
          const matrix_description& b, const matrix_description& c) {
  const bool ta = how.transpose_a == CUBLAS_OP_T;
  const bool tb = how.transpose_b == CUBLAS_OP_T;
  const bool biased = (how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  for (const auto* x : {&a, &b, &c})
    if (x->leading < static_cast<std::int64_t>(x->rows) || x->rows == 0 || x->columns == 0)
      return false;
  return a.type == b.type && (!how.tf32 || a.type == CUDA_R_32F)
    && (c.type == a.type || c.type == CUDA_R_32F) && (ta ? a.columns : a.rows) == c.rows
    && (tb ? b.rows : b.columns) == c.columns
    && (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows)
    && (!biased || (how.bias_type == c.type && how.bias != nullptr && aligned(how.bias, 16)));
}

} // namespace

namespace troupe::test {

bool& fake_cublas_lt_lacks_memory() {
  static bool result = false;
  return result;
}

fake_counts& fake_cublas_lt_counts() {
  static fake_counts result;
  return result;
}

} // namespace troupe::test

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fake_cublas_lt_lacks_memory())
    return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  ++fake_cublas_lt_counts().alive;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(reinterpret_cast<int*>(handle));
}

const char* cublasLtGetStatusString(cublasStatus_t) {
  return "an error of the test's cublasLt";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
      || scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  operation_description result;
  result.tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return make(to, result);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
  return destroy(x);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* from, std::size_t bytes) {
  auto& to = as<operation_description>(static_cast<void*>(x));
  switch (which) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return set(to.transpose_a, from, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return set(to.transpose_b, from, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return set(to.epilogue, from, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    return set(to.bias_type, from, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return set(to.bias, from, bytes);
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  return make(to, matrix_description{type, rows, columns, leading});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
  return destroy(x);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  return make(to, preference_description{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
  return destroy(x);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* from, std::size_t bytes) {
  auto& to = as<preference_description>(static_cast<void*>(x));
  switch (which) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return set(to.workspace, from, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return set(to.reductions, from, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return set(to.alignments[0], from, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return set(to.alignments[1], from, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return set(to.alignments[2], from, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return set(to.alignments[3], from, bytes);
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wishes, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  ++fake_cublas_lt_counts().proposals;
  *found = 0;
  const auto& wished = as<preference_description>(static_cast<const void*>(wishes));
  const auto& size = as<matrix_description>(static_cast<const void*>(c));
  // Without this setting, cublasLt could add up in another type or order.
  if (wished.reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE || c != d || most < 1
      || !fits(as<operation_description>(static_cast<const void*>(how)),
               as<matrix_description>(static_cast<const void*>(a)),
               as<matrix_description>(static_cast<const void*>(b)), size))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (size.rows == refused_columns)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  algorithm_description result{magic_number, wished.workspace / 2, {}};
  std::ranges::copy(wished.alignments, result.alignments);
  static_assert(sizeof results->algo >= sizeof result);
  results[0] = {};
  std::memcpy(&results[0].algo, &result, sizeof result);
  results[0].workspaceSize = result.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  const auto& how = as<operation_description>(static_cast<const void*>(operation));
  const auto& as_ = as<matrix_description>(static_cast<const void*>(a_layout));
  const auto& bs = as<matrix_description>(static_cast<const void*>(b_layout));
  const auto& size = as<matrix_description>(static_cast<const void*>(d_layout));
  algorithm_description chosen;
  std::memcpy(static_cast<void*>(&chosen), algorithm, sizeof chosen);
  const bool valid = chosen.magic == magic_number && workspace != nullptr
    && workspace_bytes >= chosen.workspace && aligned(workspace, 256) && c_layout == d_layout
    && aligned(a, chosen.alignments[0]) && aligned(b, chosen.alignments[1])
    && aligned(c, chosen.alignments[2]) && aligned(d, chosen.alignments[3])
    && fits(how, as_, bs, size) && as<float>(alpha) == 1;
  if (!valid)
    return CUBLAS_STATUS_INVALID_VALUE;
  ++fake_cublas_lt_counts().products;
  const bool ta = how.transpose_a == CUBLAS_OP_T;
  const bool tb = how.transpose_b == CUBLAS_OP_T;
  const auto k = ta ? as_.rows : as_.columns;
  // Operands are cut to the 10 bits of TF32.
  const auto rounded = [&](float x) {
    const auto mask = how.tf32 ? ~std::uint32_t{0x1fff} : ~std::uint32_t{0};
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & mask);
  };
  for (std::size_t j = 0; j < size.columns; ++j)
    for (std::size_t i = 0; i < size.rows; ++i) {
      float sum = 0;
      for (std::size_t p = 0; p < k; ++p)
        sum += rounded(element(as_, a, ta, i, p)) * rounded(element(bs, b, tb, p, j));
      if (as<float>(beta) != 0)
        sum += as<float>(beta) * element(size, c, false, i, j);
      if ((how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
        sum += load(size.type, how.bias, i);
      if ((how.epilogue & CUBLASLT_EPILOGUE_RELU) != 0)
        sum = sum < 0 ? 0 : sum;
      store(size.type, d, i + j * static_cast<std::size_t>(size.leading), sum);
    }
  return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
