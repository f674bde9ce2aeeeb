#include "apps/troupe/gpus.hpp"

#ifdef TROUPE_HAS_CUDA
#include "actors/worker/gpu_plan.hpp"
#include "kernels/cuda/executor.hpp"
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

std::size_t gpu_memory([[maybe_unused]] const job_context& context) {
#ifdef TROUPE_HAS_CUDA
  return cuda::executor::memory_bytes(*gpu_plan(context, cuda::fusion()));
#else
  return 0;
#endif
}

} // namespace troupe
