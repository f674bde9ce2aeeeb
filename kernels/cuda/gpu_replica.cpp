#include "kernels/cuda/gpu_replica.hpp"

#include "kernels/cuda/gpu_executor.hpp"
#include "kernels/cuda/updater.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace troupe::cuda {

replica_memory::~replica_memory() {
  runs = nullptr;
  try {
    updates->enter();               // the members need this, too: their memory is freed next
  } catch (const std::exception&) { // the error does not matter any more
  }
}

gpu_replica::gpu_replica(std::function<std::unique_ptr<device>()> open, ring_seat seat)
  : open_(std::move(open)), memory_(std::make_shared<replica_memory>(open_())),
    seat_(std::move(seat)) {
  if (seat_.ring)
    seat_.ring->replicas.at(seat_.rank) = memory_;
}

updater_maker gpu_replica::updaters_from(std::size_t begin) {
  return [memory = memory_, seat = seat_, begin](const updater_sizes& sizes) {
    return std::make_unique<updater>(memory, begin, sizes, updater::default_piece, seat);
  };
}

void gpu_replica::stage(std::span<const staged_update> all) {
  const auto is_there = [](const staged_update& x) { return x.how.gradient.empty(); };
  if (std::ranges::all_of(all, is_there)) {
    updater::stage_all(all);
    return;
  }
  for (const auto& x : all)
    x.updater->stage(x.how);
}

std::unique_ptr<device_executor> gpu_replica::make_executor(std::shared_ptr<const plan> what,
                                                            std::shared_ptr<const plan> on_cpu,
                                                            const gpu_options& how) {
  return std::make_unique<gpu_executor>(open_(), std::move(what), std::move(on_cpu), how, memory_);
}

} // namespace troupe::cuda
