#pragma once

#include <concepts>
#include <cstddef>
#include <string>

namespace troupe::cuda {

/// Returns a text that explains an error of the CUDA runtime. `error` is a cudaError_t as a number.
/// After some faults of kernels, the process cannot use the GPU any more. For these faults, the
/// text also says what to do.
std::string explain_cuda(int error);

/// Returns the text of out_of_memory(), with the free memory of the current GPU.
std::string explain_out_of_memory(const std::string& gpu = {}, std::size_t bytes = 0);

/// Throws a device_error with the text of `what` and of explain_cuda, or of explain_out_of_memory()
/// if there is too little memory of the GPU. Before that, clears the error in the CUDA runtime,
/// because the next launch would otherwise report it again.
[[noreturn]] void fail_cuda(int error, const std::string& what);

/// Calls fail_cuda() if `error` is not 0. `what` is a text, or a function that returns a text.
/// Every launch is checked, so a text is built only for an error.
inline void check_cuda(int error, const char* what) {
  if (error != 0)
    fail_cuda(error, what);
}
template <std::invocable What>
void check_cuda(int error, const What& what) {
  if (error != 0)
    fail_cuda(error, what());
}

} // namespace troupe::cuda
