#pragma once

#include <string>

namespace troupe::cuda {

/// What an error of the CUDA runtime means for people (cudaError_t as a number): its text, and
/// after a fault of a kernel that no call in this process can survive, what to do.
std::string explain_cuda(int error);

/// Throws device_error, `what` and explain_cuda, if `error` is not 0. Then the runtime forgets the
/// error; otherwise, the next launch would report it again.
void check_cuda(int error, const std::string& what);

} // namespace troupe::cuda
