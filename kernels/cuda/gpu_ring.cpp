#include "kernels/cuda/gpu_ring.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/gpu_replica.hpp"

#include <set>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

void connect(device& from, std::size_t other) {
  if (!from.reach(other))
    throw device_error("the GPU " + from.name() + " (number " + std::to_string(from.number())
                       + ") cannot access the memory of GPU number " + std::to_string(other));
}

} // namespace

gpu_ring::gpu_ring(std::function<std::unique_ptr<device>(std::size_t)> open,
                   std::span<const std::size_t> gpus)
  : open_(std::move(open)), gpus_(gpus.begin(), gpus.end()),
    ring_(std::make_shared<replica_ring>(gpus.size())) {
  if (gpus.size() < 2 || gpus.size() > most_terms)
    throw device_error("GPUs add up the gradients of 2 to " + std::to_string(most_terms)
                       + " workers; there are " + std::to_string(gpus.size()));
  std::vector<std::unique_ptr<device>> all;
  for (const auto index : std::set(gpus.begin(), gpus.end()))
    all.push_back(open_(index));
  for (auto& x : all)
    for (auto& y : all)
      connect(*x, y->number());
  for (auto& x : all) {
    x->enter(); // a device must be entered before it is destroyed
    x = nullptr;
  }
}

// Connects this rank with the ranks that were opened before it. Ranks that are opened later connect
// themselves with this rank.
std::unique_ptr<device_replica> gpu_ring::open(std::size_t rank) {
  auto result = std::make_unique<gpu_replica>(
    [open = open_, gpu = gpus_.at(rank)] { return open(gpu); }, ring_seat{ring_, rank});
  const auto& own = *ring_->replicas[rank]->updates;
  for (const auto& x : ring_->replicas) {
    if (!x)
      continue;
    connect(*x->updates, own.number());
    connect(*ring_->replicas[rank]->updates, x->updates->number());
  }
  return result;
}

} // namespace troupe::cuda
