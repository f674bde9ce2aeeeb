#include "kernels/cuda/updater.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/updates.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

/// Copies n elements within device memory.
void copy(stream where, std::size_t n, const float* from, float* to) {
  copy_rows(where, {1, n, from, n, to, n});
}

} // namespace

updater::updater(std::shared_ptr<device> where, const updater_sizes& sizes, std::size_t piece)
  : gpu_(std::move(where)), sizes_(sizes) {
  gpu_->enter();
  const auto n = sizes.elements;
  weights_ = {*gpu_, n};
  gradient_ = {*gpu_, sizes.gradient_there ? 0 : n};
  state_ = {*gpu_, sizes.slots * n};
  moment_ = {*gpu_, sizes.moment_apart ? n : 0};
  space_ = {*gpu_, sizes.by_tensor ? sum_space : 0};
  const auto count = sizes.by_tensor ? 1 : (n + piece - 1) / piece;
  for (const auto& part : split_evenly(n, std::max<std::size_t>(count, 1)))
    pieces_.push_back({part, gpu_->make_event(), gpu_->make_event()});
  fill_zero(gpu_->main_stream(), state_.size(), state_.data());
}

updater::updater(std::shared_ptr<replica_memory> replica, std::size_t begin,
                 const updater_sizes& sizes, std::size_t piece, ring_seat seat)
  : updater(replica->updates, sizes, piece) {
  replica_ = std::move(replica);
  begin_ = begin;
  part_ = replica_->parts.size();
  replica_->parts.push_back({begin, sizes.elements, weights_.data()});
  if (sizes.in_ring)
    sum_.emplace(std::move(seat), range{begin, begin + sizes.elements});
}

updater::~updater() {
  try {
    gpu_->enter(); // the members need this, too: their memory is freed next
    gpu_->synchronize(gpu_->main_stream());
    gpu_->synchronize(gpu_->copy_stream());
  } catch (const std::exception&) { // an error of work whose results are not needed
  }
  if (replica_) // the executor of the replica may still read the weights
    for (auto* x : {&weights_, &staged_weights_})
      replica_->weights.push_back(std::move(*x));
}

std::size_t updater::memory_bytes(const updater_sizes& sizes, bool staged) {
  const std::size_t vectors = 1 + (sizes.gradient_there ? 0 : 1) + sizes.slots
    + (sizes.moment_apart ? 1 : 0) + (staged ? 1 + sizes.slots : 0);
  return vectors * sizes.elements * sizeof(float)
    + (sizes.in_ring ? ring_sum::memory_bytes(sizes.elements) : 0)
    + (sizes.by_tensor ? sum_space : 0) * sizeof(double);
}

void updater::reserve_stage() {
  gpu_->enter();
  if (staged_weights_.size() == 0)
    staged_weights_ = {*gpu_, weights_.size()};
  if (staged_state_.size() == 0)
    staged_state_ = {*gpu_, state_.size()};
}

void updater::bind_weights(const range_update& x) {
  if (weights_are_ != x.weights.data())
    gpu_->copy_in(gpu_->main_stream(), weights_.data(), x.weights.data(), weights_.bytes());
  weights_are_ = x.weights.data();
}

void updater::copy_in(const range_update& x, const piece& part) {
  const auto begin = part.where.begin;
  const auto n = part.where.size();
  const auto send = [&](const staged_buffer<float>& to, std::span<const float> from) {
    std::ranges::copy(from.subspan(begin, n), to.host().subspan(begin).begin());
    to.send(gpu_->main_stream(), begin, n);
  };
  send(gradient_, x.gradient);
  if (sizes_.moment_apart)
    send(moment_, x.moment);
}

void updater::run(const range_update& x, range piece, const float* gradient, float* updated,
                  float* state) {
  const auto where = gpu_->main_stream();
  for (const auto& part : x.parts) {
    const auto both = intersect(part.where, piece);
    const auto begin = both.begin;
    const auto n = both.size();
    if (n == 0)
      continue;
    update_arguments<float> arguments;
    arguments.weights = {weights_.data() + begin, n};
    arguments.gradient = {gradient + begin, n};
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

void updater::copy_out(const piece& part, const float* updated) {
  const auto begin = part.where.begin;
  const auto n = part.where.size();
  const auto copies = gpu_->copy_stream();
  part.computed->record(gpu_->main_stream());
  part.computed->hold(copies);
  gpu_->copy_out(copies, gradient_.host().data() + begin, updated + begin, n * sizeof(float));
  if (sizes_.moment_apart)
    moment_.fetch(copies, begin, n);
  part.copied->record(copies);
}

void updater::deliver(const range_update& x) {
  for (const auto& part : pieces_) {
    const auto begin = part.where.begin;
    const auto n = part.where.size();
    try {
      part.copied->wait();
    } catch (const device_error& error) {
      throw device_error(std::string(error.what()) + ", in the update of parameters "
                         + std::to_string(begin) + " to " + std::to_string(begin + n) + " of "
                         + std::to_string(sizes_.elements));
    }
    const auto take = [&](const staged_buffer<float>& from, std::span<float> to) {
      std::ranges::copy(from.host().subspan(begin, n), to.subspan(begin).begin());
    };
    take(gradient_, x.updated);
    if (sizes_.moment_apart)
      take(moment_, x.moment);
  }
}

void updater::update_all(const range_update& x, float* updated, float* state) {
  for (const auto& part : pieces_) {
    copy_in(x, part);
    run(x, part.where, gradient_.data(), updated, state);
    copy_out(part, updated);
  }
  deliver(x);
}

void updater::apply(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  bind_weights(x);
  weights_are_ = nullptr;
  update_all(x, weights_.data(), state_.data());
  weights_are_ = x.updated.data();
}

void updater::stage(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  reserve_stage();
  if (!replica_)
    bind_weights(x);
  copy(gpu_->main_stream(), state_.size(), state_.data(), staged_state_.data());
  if (replica_) {
    update_replica(x);
    return;
  }
  update_all(x, staged_weights_.data(), staged_state_.data());
  staged_are_ = x.updated.data();
}

// Does not wait for the runs of the executor: device_replica requires that these runs have ended.
// If gradients are added up in a ring, the sum is computed in the stream of the updates. So the
// updates need no event for the sum.
void updater::update_replica(const range_update& x) {
  const auto where = gpu_->main_stream();
  const bool there = x.gradient.empty();
  for (auto& part : pieces_) {
    if (!there) {
      if (std::exchange(part.arriving, false))
        part.copied->wait();
      copy_in(x, part);
      part.copied->record(where);
      part.arriving = true;
    }
    run(x, part.where, gradient_of(x), staged_weights_.data(), staged_state_.data());
  }
  replica_->updated->record(where);
}

/// Returns the gradient in device memory.
const float* updater::gradient_of(const range_update& x) const {
  if (!x.gradient.empty())
    return gradient_.data();
  return sum_ ? sum_->data() : replica_->gradient + begin_;
}

void updater::publish() noexcept {
  std::swap(weights_, staged_weights_);
  std::swap(state_, staged_state_);
  std::swap(weights_are_, staged_are_);
  if (replica_)
    replica_->parts[part_].weights = weights_.data();
}

void updater::read(const float* from, std::span<float> to) {
  if (to.empty())
    return;
  gpu_->enter();
  const auto where = gpu_->main_stream();
  gpu_->copy_out(where, to.data(), from, to.size_bytes());
  gpu_->synchronize(where);
}

std::span<const float> updater::state(std::size_t slot) {
  read_.resize(sizes_.elements);
  read(state_.data() + slot * sizes_.elements, read_);
  return read_;
}

void updater::write_weights(std::span<const float> values) {
  if (values.empty())
    return;
  gpu_->enter();
  gpu_->copy_in(gpu_->main_stream(), weights_.data(), values.data(), values.size_bytes());
  replica_->updated->record(gpu_->main_stream());
}

void updater::restore(std::size_t slot, std::span<const float> values) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  gpu_->copy_in(gpu_->main_stream(), state_.data() + slot * sizes_.elements, values.data(),
                sizes_.elements * sizeof(float));
}

} // namespace troupe::cuda
