#pragma once

// Marks functions that run on the CPU and within CUDA kernels. For compilers other than nvcc, these
// are ordinary functions.
#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
