#pragma once

// Marks functions that run both on the CPU and in CUDA kernels. For compilers other than nvcc, the
// mark is empty.
#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
