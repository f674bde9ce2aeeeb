#include "kernels/cuda/gpus.hpp"

#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/updater.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

class gpu_executor final : public device_executor {
public:
  gpu_executor(std::unique_ptr<device> gpu, std::shared_ptr<const plan> what,
               std::shared_ptr<const plan> on_cpu, const gpu_options& how)
    : gpu_(std::move(gpu)), run_(*gpu_, std::move(what), how), on_cpu_(std::move(on_cpu)) {}

  std::optional<run_result> advance(const run_arguments<float>& x) override {
    if (std::ranges::find(x.weights, nullptr) != x.weights.end())
      return std::nullopt;
    return run_.advance(x);
  }
  void give_sums(std::span<const double> totals, std::size_t rows) override {
    run_.give_sums(totals, rows);
  }
  void restart() noexcept override { run_.restart(); }
  std::string find_not_finite(const run_arguments<float>& x) override {
    return troupe::executor<float>(on_cpu_).find_not_finite(x);
  }
  std::span<const float> fetched(std::size_t index) override { return run_.fetched(index); }
  const plan& what() const noexcept override { return run_.what(); }
  bool keeps_weights() const override { return true; }

private:
  std::unique_ptr<device> gpu_; // outlives run_
  executor run_;
  std::shared_ptr<const plan> on_cpu_;
};

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
  gpu_memory memory_of(const plan& what) const override {
    return {executor::memory_bytes(what), executor::pinned_bytes(what)};
  }
  std::unique_ptr<device_executor> make_executor(std::size_t index,
                                                 std::shared_ptr<const plan> what,
                                                 std::shared_ptr<const plan> on_cpu,
                                                 const gpu_options& how) const override {
    auto gpu = open_(index);
    const auto bytes = executor::memory_bytes(*what);
    try {
      return std::make_unique<gpu_executor>(std::move(gpu), std::move(what), std::move(on_cpu),
                                            how);
    } catch (const device_error& error) {
      throw device_error(std::string(error.what()) + ". Batches of this size take "
                         + std::to_string(bytes / 1'000'000 + 1) + " MB there in all");
    }
  }
  gpu_memory memory_of(const updater_sizes& sizes, bool staged) const override {
    return {updater::memory_bytes(sizes, staged), updater::pinned_bytes(sizes)};
  }
  updater_maker open_updaters(std::size_t index) const override {
    return [gpu = std::shared_ptr<device>(open_(index))](const updater_sizes& sizes) {
      return std::make_unique<updater>(gpu, sizes);
    };
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
