#include "kernels/cuda/gpu_executor.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/updates.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace troupe::cuda {

// The host waits for the next run before it makes the next updates. Therefore, the copies end
// before an update overwrites the weights of the replica.
void copy_newest_weights(device& gpu, executor& to, replica_memory& from) {
  gpu.enter();
  from.updated->hold(to.where());
  std::vector<range_copy> copies;
  for (const auto& part : from.parts)
    if (part.size > 0)
      copies.push_back({part.weights, to.weights().data() + part.begin, part.size});
  if (copies.size() == 1)
    gpu.copy_inside(to.where(), copies[0].to, copies[0].from, copies[0].n * sizeof(float));
  else
    copy_ranges(to.where(), copies);
}

gpu_executor::gpu_executor(std::unique_ptr<device> gpu, std::shared_ptr<const plan> what,
                           std::shared_ptr<const plan> on_cpu, const gpu_options& how,
                           std::shared_ptr<replica_memory> replica)
  : replica_(std::move(replica)), work_(make_work(std::move(gpu), std::move(what), how)),
    on_cpu_(std::move(on_cpu)) {
  if (!replica_)
    return;
  replica_->runs = work_;
  replica_->gradient = work_->run.gradient().data();
}

std::shared_ptr<gpu_executor::work> gpu_executor::make_work(std::unique_ptr<device> gpu,
                                                            std::shared_ptr<const plan> what,
                                                            const gpu_options& how) {
  const auto bytes = executor::memory_bytes(*what, 0, how);
  try {
    return std::make_shared<work>(std::move(gpu), std::move(what), how);
  } catch (const device_error& error) {
    throw device_error(std::string(error.what()) + ". Batches of this size take "
                       + std::to_string(bytes / 1'000'000 + 1) + " MB there in all");
  }
}

std::optional<run_result> gpu_executor::advance(const run_arguments<float>& x) {
  if (std::ranges::find(x.weights, nullptr) != x.weights.end())
    return std::nullopt;
  return work_->run.advance(x);
}

void gpu_executor::take_weights() {
  copy_newest_weights(*work_->gpu, work_->run, *replica_);
}

void gpu_executor::read(std::span<const float> from, std::span<float> to) {
  if (from.empty())
    return;
  work_->gpu->enter();
  work_->gpu->copy_out(work_->run.where(), to.data(), from.data(), from.size_bytes());
  work_->gpu->synchronize(work_->run.where());
}

void gpu_executor::spoil_gradient() {
  const auto gradient = work_->run.gradient();
  if (gradient.empty())
    return;
  const float value = std::numeric_limits<float>::quiet_NaN();
  work_->gpu->enter();
  work_->gpu->copy_in(work_->run.where(), gradient.data(), &value, sizeof value);
  work_->gpu->synchronize(work_->run.where());
}

std::string gpu_executor::find_not_finite(const run_arguments<float>& x) {
  auto how = x;
  std::vector<float> weights;
  std::vector<const float*> pointers;
  if (x.weights.empty()) {
    weights.resize(work_->run.weights().size());
    read(work_->run.weights(), weights);
    for (const auto& tensor : what().parameters().entries())
      pointers.push_back(weights.data() + tensor.offset);
    how.weights = pointers;
  }
  return troupe::executor<float>(on_cpu_).find_not_finite(how);
}

} // namespace troupe::cuda
