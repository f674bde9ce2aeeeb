#include "kernels/cuda/cuda_errors.hpp"

#include "kernels/devices/device_error.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace troupe::cuda {

namespace {

/// After one of these errors, the GPU refuses all further work of the process (CUDA Runtime API,
/// cudaError).
constexpr cudaError_t lasting[] = {cudaErrorIllegalAddress,      cudaErrorLaunchFailure,
                                   cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
                                   cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
                                   cudaErrorHardwareStackError,  cudaErrorAssert,
                                   cudaErrorLaunchTimeout,       cudaErrorECCUncorrectable};

} // namespace

std::string explain_cuda(int error) {
  const auto code = static_cast<cudaError_t>(error);
  std::string result = cudaGetErrorString(code);
  if (std::ranges::find(lasting, code) != std::end(lasting))
    result += ". After this fault, this process cannot use the GPU any more: restart it";
  return result;
}

void check_cuda(int error, const std::string& what) {
  if (error == cudaSuccess)
    return;
  cudaGetLastError();
  throw device_error(what + ": " + explain_cuda(error));
}

} // namespace troupe::cuda
