#pragma once

#include <string>

namespace troupe::cuda {

/// Explains an error of the CUDA runtime (a cudaError_t as a number) to people. The result is the
/// text of the error. After some faults of kernels, the process cannot use the GPU any more. For
/// these, the result also says what to do.
std::string explain_cuda(int error);

/// If `error` is not 0, throws a device_error with the text of `what` and of explain_cuda. Before
/// that, clears the error in the CUDA runtime, because the next launch would otherwise report it
/// again.
void check_cuda(int error, const std::string& what);

} // namespace troupe::cuda
