#include "kernels/devices/device_executor.hpp"

#include <utility>

namespace troupe {

namespace {

class cpu_executor final : public device_executor {
public:
  cpu_executor(std::shared_ptr<const plan> what, std::size_t threads)
    : run_(std::move(what), threads) {}

  std::optional<run_result> advance(const run_arguments<float>& x) override {
    return run_.advance(x);
  }
  void give_sums(std::span<const double> totals, std::size_t rows) override {
    run_.give_sums(totals, rows);
  }
  void restart() noexcept override { run_.restart(); }
  std::string find_not_finite(const run_arguments<float>& x) override {
    return run_.find_not_finite(x);
  }
  std::span<const float> fetched(std::size_t index) override { return run_.fetched(index); }
  const plan& what() const noexcept override { return run_.what(); }
  bool takes_rows(std::size_t weight) const override { return may_be_cut(run_.what(), weight); }

private:
  executor<float> run_;
};

} // namespace

std::unique_ptr<device_executor> make_cpu_executor(std::shared_ptr<const plan> what,
                                                   std::size_t threads) {
  return std::make_unique<cpu_executor>(std::move(what), threads);
}

const gpu_set& require_gpus(const gpu_set* gpus) {
  if (gpus == nullptr)
    throw device_error("this program was built without code for GPUs. Build it where CUDA's nvcc "
                       "is installed (TROUPE_CUDA=ON), or use the CPU");
  return *gpus;
}

} // namespace troupe
