#include "apps/troupe/gpus.hpp"

#ifdef TROUPE_HAS_CUDA
#include "kernels/cuda/gpus.hpp"
#endif

namespace troupe {

std::shared_ptr<const gpu_set> gpus_here() {
#ifdef TROUPE_HAS_CUDA
  return cuda::make_gpus(cuda::open_device);
#else
  return nullptr;
#endif
}

} // namespace troupe
