#include "kernels/cuda/updater.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/updates.hpp"

#include <utility>

namespace troupe::cuda {

namespace {

/// On the device, without gaps.
void copy(stream where, std::size_t n, const float* from, float* to) {
  copy_rows(where, {1, n, from, n, to, n});
}

} // namespace

updater::updater(std::shared_ptr<device> where, const updater_sizes& sizes)
  : gpu_(std::move(where)), sizes_(sizes) {
  gpu_->enter();
  const auto n = sizes.elements;
  weights_ = {*gpu_, n};
  gradient_ = {*gpu_, n};
  state_ = {*gpu_, sizes.slots * n};
  moment_ = {*gpu_, sizes.moment_apart ? n : 0};
  space_ = {*gpu_, sizes.by_tensor ? sum_space : 0};
  fill_zero(gpu_->main_stream(), state_.size(), state_.data());
}

std::size_t updater::memory_bytes(const updater_sizes& sizes, bool staged) {
  const std::size_t vectors =
    2 + sizes.slots + (sizes.moment_apart ? 1 : 0) + (staged ? 1 + sizes.slots : 0);
  return vectors * sizes.elements * sizeof(float)
    + (sizes.by_tensor ? sum_space : 0) * sizeof(double);
}

void updater::reserve_stage() {
  gpu_->enter();
  if (staged_weights_.size() == 0)
    staged_weights_ = {*gpu_, weights_.size()};
  if (staged_state_.size() == 0)
    staged_state_ = {*gpu_, state_.size()};
}

void updater::copy_in(const range_update& x) {
  const auto where = gpu_->main_stream();
  if (weights_are_ != x.weights.data())
    gpu_->copy_in(where, weights_.data(), x.weights.data(), weights_.bytes());
  weights_are_ = x.weights.data();
  gpu_->copy_in(where, gradient_.data(), x.gradient.data(), gradient_.bytes());
  if (sizes_.moment_apart)
    gpu_->copy_in(where, moment_.data(), x.moment.data(), moment_.bytes());
}

void updater::run(const range_update& x, float* updated, float* state) {
  const auto where = gpu_->main_stream();
  for (const auto& part : x.parts) {
    const auto begin = part.where.begin;
    const auto n = part.where.size();
    update_arguments<float> arguments;
    arguments.weights = {weights_.data() + begin, n};
    arguments.gradient = {gradient_.data() + begin, n};
    arguments.updated = {updated + begin, n};
    if (part.kind == parameter_kind::frozen) {
      if (updated != weights_.data())
        copy(where, n, weights_.data() + begin, updated + begin);
      continue;
    }
    if (part.kind == parameter_kind::state) {
      update_statistics(where, arguments.weights, arguments.gradient, x.mean, part.decay,
                        arguments.updated);
      continue;
    }
    if (sizes_.slots > 0)
      arguments.state = {state + begin, (sizes_.slots - 1) * sizes_.elements + n};
    arguments.stride = sizes_.elements;
    if (sizes_.moment_apart)
      arguments.moment = {moment_.data() + begin, n};
    arguments.moment_step = x.moment_step;
    arguments.look_ahead = x.look_ahead;
    arguments.rate = part.rate;
    arguments.scale = x.scale;
    arguments.step = x.step;
    update(where, part.rule, arguments, space_.data());
  }
}

void updater::copy_out(const range_update& x, const float* updated) {
  const auto where = gpu_->main_stream();
  gpu_->copy_out(where, x.updated.data(), updated, weights_.bytes());
  if (sizes_.moment_apart)
    gpu_->copy_out(where, x.moment.data(), moment_.data(), moment_.bytes());
  gpu_->synchronize(where);
}

void updater::apply(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  copy_in(x);
  weights_are_ = nullptr;
  run(x, weights_.data(), state_.data());
  copy_out(x, weights_.data());
  weights_are_ = x.updated.data();
}

void updater::stage(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  reserve_stage();
  copy_in(x);
  copy(gpu_->main_stream(), state_.size(), state_.data(), staged_state_.data());
  run(x, staged_weights_.data(), staged_state_.data());
  copy_out(x, staged_weights_.data());
  staged_are_ = x.updated.data();
}

void updater::publish() noexcept {
  std::swap(weights_, staged_weights_);
  std::swap(state_, staged_state_);
  std::swap(weights_are_, staged_are_);
}

std::span<const float> updater::state(std::size_t slot) {
  read_.resize(sizes_.elements);
  if (!read_.empty()) {
    gpu_->enter();
    const auto where = gpu_->main_stream();
    gpu_->copy_out(where, read_.data(), state_.data() + slot * sizes_.elements,
                   sizes_.elements * sizeof(float));
    gpu_->synchronize(where);
  }
  return read_;
}

void updater::restore(std::size_t slot, std::span<const float> values) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  gpu_->copy_in(gpu_->main_stream(), state_.data() + slot * sizes_.elements, values.data(),
                sizes_.elements * sizeof(float));
}

} // namespace troupe::cuda
