#include "apps/troupe/gpus.hpp"

#include "kernels/error.hpp"

#ifdef TROUPE_HAS_CUDA
#include "kernels/cuda/gpus.hpp"
#endif

#include <algorithm>
#include <string>

namespace troupe {

std::shared_ptr<const gpu_set> gpus_here(const std::vector<std::uint32_t>& chosen) {
  for (const auto index : chosen)
    if (std::ranges::count(chosen, index) > 1)
      throw input_error{"--devices: GPU " + std::to_string(index)
                        + " is named twice; several tasks can share a GPU that is named once"};
#ifdef TROUPE_HAS_CUDA
  return cuda::make_gpus(cuda::open_device, chosen);
#else
  return nullptr;
#endif
}

} // namespace troupe
