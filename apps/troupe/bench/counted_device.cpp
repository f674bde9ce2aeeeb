#include "apps/troupe/bench/counted_device.hpp"

#include <utility>

namespace troupe::bench {

namespace {

class counted_event final : public cuda::event {
public:
  counted_event(std::unique_ptr<cuda::event> inner, device_counts& counts)
    : inner_(std::move(inner)), counts_(counts) {}

  void record(cuda::stream where) override { inner_->record(where); }
  void hold(cuda::stream where) override { inner_->hold(where); }
  void wait() override {
    ++counts_.waits;
    inner_->wait();
  }

private:
  std::unique_ptr<cuda::event> inner_;
  device_counts& counts_;
};

class counted_recording final : public cuda::recording {
public:
  counted_recording(std::unique_ptr<cuda::recording> inner, device_counts& counts)
    : inner_(std::move(inner)), counts_(counts) {}

  void replay(cuda::stream where) override {
    ++counts_.replays;
    inner_->replay(where);
  }

private:
  std::unique_ptr<cuda::recording> inner_;
  device_counts& counts_;
};

} // namespace

device_counts operator-(const device_counts& a, const device_counts& b) {
  return {a.allocations - b.allocations, a.waits - b.waits, a.recordings - b.recordings,
          a.replays - b.replays};
}

void* counted_device::allocate(std::size_t bytes) {
  ++counts_.allocations;
  return inner_->allocate(bytes);
}

void* counted_device::allocate_pinned(std::size_t bytes) {
  ++counts_.allocations;
  return inner_->allocate_pinned(bytes);
}

void counted_device::synchronize(cuda::stream where) {
  ++counts_.waits;
  inner_->synchronize(where);
}

std::unique_ptr<cuda::event> counted_device::make_event() {
  return std::make_unique<counted_event>(inner_->make_event(), counts_);
}

std::unique_ptr<cuda::recording> counted_device::end_recording(cuda::stream where) {
  ++counts_.recordings;
  return std::make_unique<counted_recording>(inner_->end_recording(where), counts_);
}

} // namespace troupe::bench
