#include "kernels/cuda/gpus.hpp"

#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gpu_executor.hpp"
#include "kernels/cuda/gpu_pinned_memory.hpp"
#include "kernels/cuda/gpu_replica.hpp"
#include "kernels/cuda/gpu_ring.hpp"
#include "kernels/cuda/table_rows.hpp"
#include "kernels/cuda/updater.hpp"

#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

class opened_gpus final : public gpu_set {
public:
  explicit opened_gpus(std::function<std::unique_ptr<device>(std::size_t)> open)
    : open_(std::move(open)) {}

  std::string name(std::size_t index) const override { return open_(index)->name(); }
  const fusion_table& fusion() const override { return cuda::fusion(); }
  void check(const plan& what) const override { check_supported(what); }
  void check(std::size_t index, const plan& what) const override {
    check_supported(what);
    const auto gpu = open_(index);
    check_types(*gpu, what);
    prepare_products(*gpu, what);
  }
  gpu_memory memory_of(const plan& what, std::size_t sparse_entries,
                       const gpu_options& how) const override {
    return {executor::memory_bytes(what, sparse_entries, how),
            executor::pinned_bytes(what, sparse_entries)};
  }
  gpu_memory memory_of_rows(const plan& what, std::size_t sparse_entries,
                            std::size_t batches) const override {
    const auto bytes = table_rows::memory_bytes(what, sparse_entries, batches);
    return {bytes, bytes};
  }
  std::unique_ptr<device_executor> make_executor(std::size_t index,
                                                 std::shared_ptr<const plan> what,
                                                 std::shared_ptr<const plan> on_cpu,
                                                 const gpu_options& how) const override {
    return std::make_unique<gpu_executor>(open_(index), std::move(what), std::move(on_cpu), how);
  }
  std::shared_ptr<pinned_memory> open_pinned_memory(std::size_t index) const override {
    return std::make_shared<gpu_pinned_memory>(open_(index));
  }
  gpu_memory memory_of(const updater_sizes& sizes, bool staged) const override {
    return {updater::memory_bytes(sizes, staged), updater::pinned_bytes(sizes)};
  }
  updater_maker open_updaters(std::size_t index) const override {
    return [gpu = std::shared_ptr<device>(open_(index))](const updater_sizes& sizes) {
      return std::make_unique<updater>(gpu, sizes);
    };
  }
  std::unique_ptr<device_replica> open_replica(std::size_t index) const override {
    return std::make_unique<gpu_replica>([open = open_, index] { return open(index); });
  }
  std::shared_ptr<device_ring> open_ring(std::span<const std::size_t> gpus) const override {
    return std::make_shared<gpu_ring>(open_, gpus);
  }

private:
  std::function<std::unique_ptr<device>(std::size_t)> open_;
};

} // namespace

std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open) {
  return std::make_unique<opened_gpus>(std::move(open));
}

std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open,
                                   std::vector<std::uint32_t> chosen) {
  if (chosen.empty())
    return make_gpus(std::move(open));
  return make_gpus([open = std::move(open), chosen = std::move(chosen)](std::size_t index) {
    if (index >= chosen.size())
      throw device_error("there is no GPU " + std::to_string(index) + ": this process has "
                         + std::to_string(chosen.size())
                         + " of the GPUs of this machine (--devices), counted from 0");
    return open(chosen[index]);
  });
}

} // namespace troupe::cuda
