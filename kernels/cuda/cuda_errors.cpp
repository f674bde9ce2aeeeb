#include "kernels/cuda/cuda_errors.hpp"

#include "kernels/cuda/out_of_memory.hpp"
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

std::string explain_out_of_memory(const std::string& gpu, std::size_t bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError(); // clears the error
    total = 0;
  }
  return out_of_memory(gpu, bytes, free, total);
}

void fail_cuda(int error, const std::string& what) {
  cudaGetLastError();
  throw device_error(
    what + ": "
    + (error == cudaErrorMemoryAllocation ? explain_out_of_memory() : explain_cuda(error)));
}

} // namespace troupe::cuda
