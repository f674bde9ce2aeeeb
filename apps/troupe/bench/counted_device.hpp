#pragma once

#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace troupe::bench {

/// How often a program has called those functions of a device that take long or that wait.
struct device_counts {
  /// Allocations of device memory and of pinned memory.
  std::size_t allocations = 0;
  /// How often the host waited for an event or for a stream.
  std::size_t waits = 0;
  /// How often a CUDA graph was recorded.
  std::size_t recordings = 0;
  /// How often a CUDA graph was submitted.
  std::size_t replays = 0;

  bool operator==(const device_counts&) const = default;
};

device_counts operator-(const device_counts& a, const device_counts& b);

/// A device that forwards all calls to another device, and counts them.
class counted_device final : public cuda::device {
public:
  explicit counted_device(std::unique_ptr<cuda::device> inner) : inner_(std::move(inner)) {}

  const device_counts& counts() const noexcept { return counts_; }

  std::string name() const override { return inner_->name(); }
  std::size_t number() const override { return inner_->number(); }
  cuda::stream main_stream() const override { return inner_->main_stream(); }
  cuda::stream copy_stream() const override { return inner_->copy_stream(); }
  cuda::stream upload_stream() const override { return inner_->upload_stream(); }
  void enter() override { inner_->enter(); }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override { inner_->release(memory); }
  void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override { inner_->release_pinned(memory); }
  bool is_pinned(const void* memory, std::size_t bytes) const override {
    return inner_->is_pinned(memory, bytes);
  }
  void copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    inner_->copy_in(where, to, from, bytes);
  }
  void copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    inner_->copy_out(where, to, from, bytes);
  }
  void copy_inside(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    inner_->copy_inside(where, to, from, bytes);
  }
  bool reach(std::size_t other) override { return inner_->reach(other); }
  void copy_from(cuda::stream where, void* to, std::size_t other, const void* from,
                 std::size_t bytes) override {
    inner_->copy_from(where, to, other, from, bytes);
  }
  void synchronize(cuda::stream where) override;
  std::unique_ptr<cuda::event> make_event() override;
  std::unique_ptr<cuda::time_mark> make_time_mark() override { return inner_->make_time_mark(); }
  void prepare_products(bool with_epilogues) override { inner_->prepare_products(with_epilogues); }
  void multiply(cuda::stream where, const cuda::product& x) override { inner_->multiply(where, x); }
  bool multiplies(dtype type) const override { return inner_->multiplies(type); }
  bool fuses(const cuda::product& x) override { return inner_->fuses(x); }
  void begin_recording(cuda::stream where) override { inner_->begin_recording(where); }
  std::unique_ptr<cuda::recording> end_recording(cuda::stream where) override;

private:
  std::unique_ptr<cuda::device> inner_;
  device_counts counts_;
};

} // namespace troupe::bench
