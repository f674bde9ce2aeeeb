#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace troupe::cuda {

/// Makes the next run of the executor use the newest weights of the replica. They are copied on the
/// device, after the last update.
/// @param gpu the device of the executor; the calling thread enters it
void copy_newest_weights(device& gpu, executor& to, replica_memory& from);

/// An executor of plans on a GPU. It has its own device object.
class gpu_executor final : public device_executor {
public:
  /// Throws like troupe::cuda::executor. A device_error also says how much memory the plan needs.
  /// @param on_cpu the same computation as a plan for the CPU, for find_not_finite()
  /// @param replica the replica to which this executor belongs, for take_weights(); null if there
  /// is none
  gpu_executor(std::unique_ptr<device> gpu, std::shared_ptr<const plan> what,
               std::shared_ptr<const plan> on_cpu, const gpu_options& how,
               std::shared_ptr<replica_memory> replica = {});

  std::optional<run_result> advance(const run_arguments<float>& x) override;
  void give_sums(std::span<const double> totals, std::size_t rows) override {
    work_->run.give_sums(totals, rows);
  }
  void restart() noexcept override { work_->run.restart(); }
  std::string find_not_finite(const run_arguments<float>& x) override;
  std::span<const float> fetched(std::size_t index) override { return work_->run.fetched(index); }
  const plan& what() const noexcept override { return work_->run.what(); }
  bool takes_rows(std::size_t weight) const override { return may_be_cut(what(), weight); }
  bool keeps_weights() const override { return true; }
  std::string take_notice() override { return work_->run.take_notice(); }
  void take_weights() override;
  void read_gradient(std::span<float> out) override { read(work_->run.gradient(), out); }
  void spoil_gradient() override;

private:
  struct work {
    work(std::unique_ptr<device> gpu, std::shared_ptr<const plan> what, const gpu_options& how)
      : gpu(std::move(gpu)), run(*this->gpu, std::move(what), how) {}

    std::unique_ptr<device> gpu; // outlives run
    executor run;
  };

  static std::shared_ptr<work> make_work(std::unique_ptr<device> gpu,
                                         std::shared_ptr<const plan> what, const gpu_options& how);
  void read(std::span<const float> from, std::span<float> to);

  std::shared_ptr<replica_memory> replica_; // outlives work_, which reads its weights
  /// The replica also owns the object `work`, because the updaters of the replica may still read
  /// the gradient after the executor is destroyed.
  std::shared_ptr<work> work_;
  std::shared_ptr<const plan> on_cpu_;
};

} // namespace troupe::cuda
