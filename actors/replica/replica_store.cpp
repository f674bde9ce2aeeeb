#include "actors/replica/replica_store.hpp"

#include "actors/model/moving_average.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

namespace {

template <class T>
std::span<T> cut(std::span<T> all, range where) {
  return all.subspan(where.begin, where.size());
}

} // namespace

replica_store::bucket::bucket(const job_context& context, range where, range own,
                              const replica_home& home)
  : where(where), own(own), versions(where.size(), replica_slots),
    updater(context, own, false, home.gpu ? home.gpu->updaters_from(where.begin) : updater_maker{},
            home.where == residence::gradients_on_gpu, home.in_ring) {
  context.initialize(where, versions.initial());
  if (home.gpu)
    updater.write_weights(versions.published());
  if (context.job.has_moving_average())
    average.assign(versions.published().begin(), versions.published().end());
  updater.reserve_stage();
}

replica_store::replica_store(std::shared_ptr<const job_context> context, std::size_t index,
                             std::size_t count, replica_home home)
  : context_(std::move(context)), home_(std::move(home)) {
  for (const auto& where : context_->buckets()) {
    const auto part = part_of(where.size(), count, index);
    buckets_.push_back(std::make_unique<bucket>(
      *context_, where, range{where.begin + part.begin, where.begin + part.end}, home_));
  }
}

std::optional<std::size_t> replica_store::find(range where) const {
  const auto i = std::ranges::find_if(buckets_, [&](auto& x) { return x->where == where; });
  if (i == buckets_.end())
    return std::nullopt;
  return static_cast<std::size_t>(i - buckets_.begin());
}

std::span<const float> replica_store::newest_of(bucket& x) const {
  if (!x.here) {
    x.versions.begin_always();
    x.updater.read_weights(x.versions.next());
    x.versions.publish(version_);
    x.here = true;
  }
  return x.versions.published();
}

std::vector<replica_store::part> replica_store::to_train() {
  read_ = true;
  return on_gpu() ? std::vector<part>{} : newest();
}

std::vector<replica_store::part> replica_store::newest() {
  read_ = true;
  std::vector<part> result;
  for (auto& x : buckets_) {
    newest_of(*x);
    auto newest = x->versions.newest();
    result.push_back({x->where.begin, newest.version, std::move(newest.data)});
  }
  std::ranges::sort(result, {}, &part::begin);
  return result;
}

/// Copies the range `share` of a vector that is stored in buckets.
/// @param source returns the range and the values that a bucket stores
template <class Source>
payload replica_store::gather(range share, Source source) const {
  auto result = payload::floats(share.size());
  const auto out = result.as_mutable_floats();
  for (auto& x : buckets_) {
    if (intersect(share, x->where).empty())
      continue;
    const auto [where, values] = source(*x);
    const auto common = intersect(share, where);
    if (!common.empty())
      std::ranges::copy(values.subspan(common.begin - where.begin, common.size()),
                        out.begin() + static_cast<std::ptrdiff_t>(common.begin - share.begin));
  }
  return result;
}

payload replica_store::weights(range where) const {
  return gather(where, [this](bucket& x) { return std::pair{x.where, newest_of(x)}; });
}

payload replica_store::evaluated(range where) const {
  if (!context_->job.has_moving_average())
    return weights(where);
  return gather(where, [](const bucket& x) {
    return std::pair{x.where, std::span<const float>{x.average}};
  });
}

payload replica_store::state(std::size_t slot, range where) const {
  return gather(where, [slot](const bucket& x) { return std::pair{x.own, x.updater.state(slot)}; });
}

std::vector<payload> replica_store::capture(range share, bool with_state) const {
  if (!with_state)
    return {evaluated(share)};
  std::vector<payload> result{weights(share)};
  for (std::size_t slot = 0; slot < context_->rule.slots(); ++slot)
    result.push_back(state(slot, share));
  if (context_->job.has_moving_average())
    result.push_back(evaluated(share));
  return result;
}

void replica_store::stage(std::size_t bucket, std::span<const float> gradient,
                          std::uint64_t samples, const range_updater::terms& how) {
  auto& x = *buckets_.at(bucket);
  if (home_.where == residence::gradients_on_gpu) {
    assert(gradient.empty() && how.addend.empty() && how.finite == nullptr);
    x.waiting = {samples, how};
    x.staged = true;
    if (staged())
      begin_updates();
    return;
  }
  if (on_gpu()) {
    x.updater.stage({}, gradient, samples, {}, how);
    x.staged = true;
    return;
  }
  x.versions.begin_always();
  const auto published = x.versions.published();
  const auto next = x.versions.next();
  if (samples == 0)
    std::ranges::copy(published, next.begin());
  x.updater.stage(cut(published, x.inner()), gradient, samples, cut(next, x.inner()), how);
  x.staged = samples == 0 || x.own == x.where;
}

/// Begins the updates of all buckets whose gradients are on the GPU.
void replica_store::begin_updates() {
  std::vector<device_replica::staged_update> all;
  for (auto& x : buckets_) {
    if (!x->waiting)
      continue;
    const auto [samples, how] = *std::exchange(x->waiting, std::nullopt);
    if (samples > 0)
      all.push_back(x->updater.prepare(samples, how));
    else
      x->updater.stage({}, {}, 0, {}, how);
  }
  home_.gpu->stage(all);
}

// Waits for all buckets, even if one of them is not finite, because this rank reads the memory of
// other ranks until the last sum is done.
double replica_store::squared_norm_of_sums() {
  double result = 0;
  for (auto& x : buckets_)
    result += x->updater.squared_norm_of_sum();
  return result;
}

void replica_store::clear_gradient() {
  for (auto& x : buckets_)
    x->updater.clear_gradient();
}

payload replica_store::staged_part(std::size_t bucket) const {
  auto& x = *buckets_.at(bucket);
  auto result = payload::floats(x.own.size());
  std::ranges::copy(cut(x.versions.next(), x.inner()), result.as_mutable_floats().begin());
  return result;
}

void replica_store::complete(std::size_t bucket, std::span<const float> weights) {
  auto& x = *buckets_.at(bucket);
  std::ranges::copy(weights, x.versions.next().begin());
  x.staged = true;
}

bool replica_store::staged() const noexcept {
  return std::ranges::all_of(buckets_, [](auto& x) { return x->staged; });
}

void replica_store::publish(std::uint64_t version, std::uint64_t left_out) noexcept {
  assert(staged());
  version_ = version;
  for (auto& x : buckets_) {
    if (on_gpu())
      x->here = false;
    else
      x->versions.publish(version);
    if (!x->average.empty())
      average_weights(*context_, x->where, version, x->average, x->versions.published(),
                      x->average);
    x->updater.publish();
    x->updater.skip(left_out);
    x->staged = false;
  }
}

void replica_store::discard() noexcept {
  for (auto& x : buckets_) {
    x->updater.discard();
    x->waiting.reset();
    x->staged = false;
  }
}

void replica_store::replace(range where, std::span<const float> weights) {
  for (auto& x : buckets_) {
    const auto common = intersect(where, x->where);
    if (common.empty())
      continue;
    assert(!x->staged);
    const auto published = newest_of(*x);
    x->versions.begin_always();
    const auto next = x->versions.next();
    if (common != x->where)
      std::ranges::copy(published, next.begin());
    const auto here = [&](range y) {
      return range{y.begin - x->where.begin, y.end - x->where.begin};
    };
    std::ranges::copy(weights.subspan(common.begin - where.begin, common.size()),
                      cut(next, here(common)).begin());
    for (const auto& tensor : context_->parameters().entries())
      if (const auto fixed = intersect(tensor.elements(), common);
          tensor.kind == parameter_kind::frozen && !fixed.empty())
        std::ranges::copy(cut(published, here(fixed)), cut(next, here(fixed)).begin());
    x->versions.publish(version_);
    if (on_gpu())
      x->updater.write_weights(x->versions.published());
  }
}

void replica_store::set_samples(std::uint64_t samples) noexcept {
  for (auto& x : buckets_)
    x->updater.set_samples(samples);
}

bool replica_store::restore(const proto::Restore& x, const payload& values) {
  const auto slot = x.slot();
  const auto average = context_->rule.slots() + 1;
  if (slot >= average + (context_->job.has_moving_average() ? 1 : 0)
      || values.size() != context_->parameters().size() * sizeof(float))
    return false;
  if (read_)
    return true;
  for (auto& bucket : buckets_) {
    const auto mine = cut(values.as_floats(), bucket->where);
    if (slot == average)
      bucket->average.assign(mine.begin(), mine.end());
    else if (slot > 0)
      bucket->updater.restore(slot - 1, cut(values.as_floats(), bucket->own));
    else {
      bucket->versions.begin_always();
      std::ranges::copy(mine, bucket->versions.next().begin());
      bucket->versions.publish(x.version());
      if (on_gpu())
        bucket->updater.write_weights(bucket->versions.published());
      if (x.version() == 0 && !bucket->average.empty())
        bucket->average.assign(mine.begin(), mine.end());
    }
    bucket->updater.restore(x.samples(), x.has_updates() ? x.updates() : x.version());
  }
  version_ = x.version();
  return true;
}

} // namespace troupe
