#include "kernels/cuda/updater.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/reductions.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

/// Copies n elements within device memory.
void copy(stream where, std::size_t n, const float* from, float* to) {
  copy_rows(where, {1, n, from, n, to, n});
}

/// The distance between packed vectors of n elements. Each vector is aligned for wide loads.
std::size_t packed_size(std::size_t n) {
  constexpr std::size_t alignment = 64;
  return (n + alignment - 1) / alignment * alignment;
}

/// True if updates of few elements may be packed.
bool packs(const updater_sizes& x) {
  return !x.whole && !x.by_tensor && !x.moment_apart && !x.gradient_there
    && x.elements <= std::numeric_limits<std::uint32_t>::max();
}

/// The largest number of ranges of a packed update. Each range has two positions, so they take at
/// most a quarter of the memory of a vector.
std::size_t most_ranges(const updater_sizes& x) {
  return packs(x) ? x.elements / 8 : 0;
}

std::size_t range_bytes(const updater_sizes& x) {
  return 2 * most_ranges(x) * sizeof(std::uint32_t);
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
  if (!sizes.gradient_there)
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
    sum_.emplace(std::move(seat), range{begin, begin + sizes.elements}, sizes.norm_parts);
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
    + (sizes.in_ring ? ring_sum::memory_bytes(sizes.elements, sizes.norm_parts) : 0)
    + (sizes.by_tensor ? sum_space : 0) * sizeof(double) + range_bytes(sizes);
}

std::size_t updater::pinned_bytes(const updater_sizes& sizes) {
  const std::size_t vectors = (sizes.moment_apart ? 1 : 0) + (sizes.gradient_there ? 0 : 1);
  return vectors * sizes.elements * sizeof(float)
    + (sizes.in_ring ? ring_sum::pinned_bytes(sizes.norm_parts) : 0) + range_bytes(sizes);
}

void updater::reserve_stage() {
  gpu_->enter();
  if (staged_weights_.size() == 0)
    staged_weights_ = {*gpu_, weights_.size()};
  if (staged_state_.size() == 0)
    staged_state_ = {*gpu_, state_.size()};
}

void updater::bind_weights(const range_update& x) {
  if (weights_are_ == x.weights.data())
    return;
  gpu_->copy_in(gpu_->main_stream(), weights_.data(), x.weights.data(), weights_.bytes());
  weights_are_ = x.weights.data();
  follows_ = false;
}

/// Enters the device, and prepares the memory that the staged update writes. Updates do not write
/// frozen weights, or the state of parameters that are not trainable. These values are copied to
/// the staged memory before the first update, and when the host has changed them.
void updater::prepare_stage(const range_update& x) {
  reserve_stage();
  if (!replica_)
    bind_weights(x);
  if (std::exchange(follows_, true))
    return;
  const auto where = gpu_->main_stream();
  const auto is_frozen = [](const update_part& y) { return y.kind == parameter_kind::frozen; };
  const auto is_fixed = [](const update_part& y) { return y.kind != parameter_kind::trainable; };
  if (std::ranges::any_of(x.parts, is_frozen))
    copy(where, weights_.size(), weights_.data(), staged_weights_.data());
  if (state_.size() > 0 && std::ranges::any_of(x.parts, is_fixed))
    copy(where, state_.size(), state_.data(), staged_state_.data());
}

updater::update_memory updater::in_place() const {
  return {weights_.data(), gradient_.data(), state_.data(),
          state_.data(),   weights_.data(),  sizes_.elements};
}

updater::update_memory updater::to_stage() const {
  return {weights_.data(),      gradient_.data(),       state_.data(),
          staged_state_.data(), staged_weights_.data(), sizes_.elements};
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

/// Adds the updates of a piece to a list. A rule that needs whole tensors is submitted at once.
void updater::collect(const range_update& x, range piece, const update_memory& memory,
                      update_list& to) {
  for (const auto& part : x.parts) {
    const auto both = intersect(part.where, piece);
    const auto begin = both.begin;
    const auto n = both.size();
    if (n == 0 || part.kind == parameter_kind::frozen)
      continue;
    update_arguments<float> arguments;
    arguments.weights = {memory.weights + begin, n};
    arguments.gradient = {memory.gradient + begin, n};
    arguments.updated = {memory.updated + begin, n};
    if (part.kind == parameter_kind::state) {
      to.statistics.push_back(
        {arguments.weights, arguments.gradient, x.mean, part.decay, arguments.updated});
      continue;
    }
    if (sizes_.slots > 0) {
      const auto size = (sizes_.slots - 1) * memory.stride + n;
      arguments.state = {memory.state + begin, size};
      arguments.old_state = {memory.old_state + begin, size};
    }
    arguments.stride = memory.stride;
    if (sizes_.moment_apart)
      arguments.moment = {moment_.data() + begin, n};
    arguments.moment_step = x.moment_step;
    arguments.look_ahead = x.look_ahead;
    arguments.rate = part.rate;
    arguments.scale = x.scale;
    arguments.step = x.step;
    if (part.rule.by_tensor())
      update(gpu_->main_stream(), part.rule, arguments, space_.data());
    else
      to.trainable.push_back({part.rule, arguments});
  }
}

void updater::update_list::submit(stream where) const {
  update(where, trainable);
  update_statistics(where, statistics);
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

void updater::update_all(const range_update& x, const update_memory& memory) {
  for (const auto& part : pieces_) {
    copy_in(x, part);
    update_list list;
    collect(x, part.where, memory, list);
    list.submit(gpu_->main_stream());
    copy_out(part, memory.updated);
  }
  deliver(x);
}

void updater::apply(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  bind_weights(x);
  weights_are_ = nullptr;
  if (x.only != nullptr && is_worth_packing(*x.only))
    update_some(x);
  else
    update_all(x, in_place());
  weights_are_ = x.updated.data();
}

// The packed vectors take the memory of the gradient.
bool updater::is_worth_packing(const range_list& only) const {
  const auto vectors = 2 + sizes_.slots;
  return packs(sizes_) && only.size() <= most_ranges(sizes_)
    && vectors * packed_size(elements_of(only)) <= sizes_.elements;
}

/// Copies the positions of these ranges to the device.
packed_ranges updater::send_ranges(const range_list& only) {
  const auto count = only.size();
  if (ranges_.size() < 2 * count) {
    const auto grown = std::min(std::max(count, ranges_.size()), most_ranges(sizes_));
    ranges_ = {}; // the old memory is released before the new memory is allocated
    ranges_ = {*gpu_, 2 * grown};
  }
  packed_ranges result{{ranges_.data(), count}, {ranges_.data() + count, count}};
  for (std::size_t i = 0; i < count; ++i) {
    ranges_.host()[i] = static_cast<std::uint32_t>(only[i].begin);
    ranges_.host()[count + i] = static_cast<std::uint32_t>(result.elements);
    result.elements += only[i].size();
  }
  ranges_.send(gpu_->main_stream(), 0, 2 * count);
  return result;
}

/// Updates the elements of x.only, with vectors that contain only them.
void updater::update_some(const range_update& x) {
  const auto where = gpu_->main_stream();
  const auto which = send_ranges(*x.only);
  const auto n = which.elements;
  const auto size = packed_size(n);
  auto* const weights = gradient_.data() + size;
  auto* const state = weights + size;
  const auto host = gradient_.host();
  for (auto to = host.begin(); const auto& part : *x.only)
    to = std::ranges::copy(x.gradient.subspan(part.begin, part.size()), to).out;
  gradient_.send(where, 0, n);
  pack_ranges(where, which, 1, sizes_.elements, weights_.data(), weights);
  pack_ranges(where, which, sizes_.slots, sizes_.elements, state_.data(), state);

  auto packed = x;
  std::vector<update_part> parts{x.parts.begin(), x.parts.end()};
  for (std::size_t end = 0; auto& part : parts) {
    const auto begin = end;
    end += elements_of(cut(*x.only, part.where));
    part.where = {begin, end};
  }
  packed.parts = parts;
  update_list list;
  collect(packed, {0, n}, {weights, gradient_.data(), state, state, weights, n}, list);
  list.submit(where);

  unpack_ranges(where, which, 1, sizes_.elements, weights, weights_.data());
  unpack_ranges(where, which, sizes_.slots, sizes_.elements, state, state_.data());
  gradient_.fetch(where, size, n);
  gpu_->synchronize(where);
  for (auto from = host.subspan(size); const auto& part : *x.only) {
    std::ranges::copy(from.first(part.size()), x.updated.subspan(part.begin).begin());
    from = from.subspan(part.size());
  }
}

void updater::stage(const range_update& x) {
  if (sizes_.elements == 0)
    return;
  if (replica_ && x.gradient.empty()) {
    const device_replica::staged_update one{this, x};
    stage_all({&one, 1});
    return;
  }
  prepare_stage(x);
  if (replica_) {
    update_replica(x);
    return;
  }
  update_all(x, to_stage());
  staged_are_ = x.updated.data();
}

// Does not wait for the runs of the executor: device_replica requires that these runs have ended.
// If gradients are added up in a ring, the sums are computed in the stream of the updates. So the
// updates need no event for the sums.
void updater::stage_all(std::span<const device_replica::staged_update> all) {
  update_list list;
  const replica_memory* replica = nullptr;
  for (const auto& x : all) {
    auto& there = static_cast<updater&>(*x.updater);
    if (there.sizes_.elements == 0)
      continue;
    replica = there.replica_.get();
    there.prepare_stage(x.how);
    auto memory = there.to_stage();
    memory.gradient = there.sum_ ? there.sum_->data() : replica->gradient + there.begin_;
    there.collect(x.how, {0, there.sizes_.elements}, memory, list);
  }
  if (replica == nullptr)
    return;
  list.submit(replica->updates->main_stream());
  replica->updated->record(replica->updates->main_stream());
}

/// Updates with a gradient in the host's memory. Like the function above, it does not wait.
void updater::update_replica(const range_update& x) {
  const auto where = gpu_->main_stream();
  for (auto& part : pieces_) {
    if (std::exchange(part.arriving, false))
      part.copied->wait();
    copy_in(x, part);
    part.copied->record(where);
    part.arriving = true;
    update_list list;
    collect(x, part.where, to_stage(), list);
    list.submit(where);
  }
  replica_->updated->record(where);
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
  follows_ = false;
  replica_->updated->record(gpu_->main_stream());
  gpu_->synchronize(gpu_->main_stream()); // the copy may read `values` until then
}

void updater::restore(std::size_t slot, std::span<const float> values) {
  if (sizes_.elements == 0)
    return;
  gpu_->enter();
  follows_ = false;
  gpu_->copy_in(gpu_->main_stream(), state_.data() + slot * sizes_.elements, values.data(),
                sizes_.elements * sizeof(float));
  gpu_->synchronize(gpu_->main_stream()); // the copy may read `values` until then
}

} // namespace troupe::cuda
