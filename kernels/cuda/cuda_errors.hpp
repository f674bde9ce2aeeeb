#pragma once

#include <cstddef>
#include <string>

namespace troupe::cuda {

/// Returns a text that explains an error of the CUDA runtime. `error` is a cudaError_t as a number.
/// After some faults of kernels, the process cannot use the GPU any more. For these faults, the
/// text also says what to do.
std::string explain_cuda(int error);

/// Returns the text of out_of_memory(), with the free memory of the current GPU.
std::string explain_out_of_memory(const std::string& gpu = {}, std::size_t bytes = 0);

/// If `error` is not 0, throws a device_error with the text of `what` and of explain_cuda, or of
/// explain_out_of_memory() if there is too little memory of the GPU. Before that, clears the error
/// in the CUDA runtime, because the next launch would otherwise report it again.
void check_cuda(int error, const std::string& what);

} // namespace troupe::cuda
