#pragma once

// Functions that run on the CPU and within CUDA kernels. Compilers other than nvcc see plain
// functions.
#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
