#include "actors/worker/trainer.hpp"

#include "actors/link/sent_together.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cpu/rounding.hpp"
#include "kernels/error.hpp"
#include "kernels/optimizers/gradient_norm.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace troupe {

namespace {

const std::int32_t* integers(const payload& data) {
  return reinterpret_cast<const std::int32_t*>(data.data());
}

feed<float> fed(const payload& data, bool as_integers) {
  return as_integers ? feed<float>{integers(data)} : feed<float>{data.as_floats().data()};
}

feed<float> fed_features(const sample_batch& x, feature_kind kind) {
  if (kind == feature_kind::sparse)
    return sparse_rows<float>{integers(x.row_starts), integers(x.columns),
                              x.features.as_floats().data()};
  return fed(x.features, kind == feature_kind::tokens);
}

/// The number of a batch. It is unique over all steps.
std::uint64_t batch_number(std::uint64_t ticket, std::size_t batch) {
  return (ticket << 32) + batch + 1;
}

} // namespace

weight_binding::weight_binding(const layout& parameters, std::vector<bool> takes_rows)
  : parameters_(&parameters), takes_rows_(std::move(takes_rows)),
    pointers_(parameters.entries().size()), missing_(parameters.entries().size()),
    gathered_(parameters.entries().size()) {
  clear();
}

void weight_binding::clear() {
  ranges_.clear();
  parts_.clear();
  std::ranges::fill(pointers_, nullptr);
  for (std::size_t i = 0; i < missing_.size(); ++i)
    missing_[i] = parameters_->entries()[i].elements().size();
}

void weight_binding::add(const weight_range& x) {
  const auto values = x.data.as_floats();
  const range here{x.begin, x.begin + values.size()};
  ranges_.insert(std::ranges::upper_bound(ranges_, x.begin, {}, &weight_range::begin), x);
  for (std::size_t i = 0; i < pointers_.size(); ++i) {
    const auto tensor = parameters_->entries()[i].elements();
    const auto part = intersect(tensor, here);
    if (part.size() == 0)
      continue;
    missing_[i] -= part.size();
    if (part == tensor)
      pointers_[i] = values.data() + (tensor.begin - here.begin);
    else if (missing_[i] == 0)
      join(i);
  }
}

void weight_binding::join(std::size_t entry) {
  const auto& x = parameters_->entries()[entry];
  const auto before = parts_.size();
  for (const auto& from : ranges_) {
    const auto values = from.data.as_floats();
    const auto part = intersect(x.elements(), {from.begin, from.begin + values.size()});
    if (part.empty())
      continue;
    const auto width = x.size / static_cast<std::size_t>(x.shape[0]);
    const range here{part.begin - x.offset, part.end - x.offset};
    const bool rows = here.begin % width == 0 && here.end % width == 0 && here.size() > width;
    if (!takes_rows_[entry] || !rows) {
      parts_.resize(before);
      gather(entry);
      return;
    }
    parts_.push_back(
      {entry, {here.begin / width, here.end / width}, values.data() + (part.begin - from.begin)});
  }
  pointers_[entry] = parts_[before].values;
}

void weight_binding::gather(std::size_t entry) {
  const auto tensor = parameters_->entries()[entry].elements();
  if (gathered_[entry].empty())
    gathered_[entry] = payload::floats(tensor.size());
  const auto out = gathered_[entry].as_mutable_floats();
  for (const auto& from : ranges_) {
    const auto values = from.data.as_floats();
    const auto part = intersect(tensor, {from.begin, from.begin + values.size()});
    if (!part.empty())
      std::ranges::copy(values.subspan(part.begin - from.begin, part.size()),
                        out.subspan(part.begin - tensor.begin).begin());
  }
  pointers_[entry] = out.data();
}

void weight_binding::gather() {
  for (const auto& part : parts_)
    if (part.rows.begin == 0)
      gather(part.weight);
  parts_.clear();
}

trainer::trainer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                 trainer_device device, synchronizer_actor synchronizer, trainer_listener listener,
                 ring_node_actor sums, const std::optional<loss_scale_state>& scale)
  : super(cfg), context_(std::move(context)), synchronizer_(std::move(synchronizer)),
    listener_(std::move(listener)), sums_(std::move(sums)), device_(std::move(device)),
    rounds_(context_->job.exchange_precision() == proto::BFLOAT16),
    tables_(tables_of(*context_->training, {0, context_->parameters().size()})),
    memory_(context_->parameters().size()) {
  const auto& how = context_->job.loss_scale();
  if (!context_->training->loss_scale_feed())
    return;
  if (scale)
    scale_.emplace(*scale, how.growth_interval());
  else
    scale_.emplace(static_cast<float>(how.initial()), how.growth_interval());
}

trainer::behavior_type trainer::make_behavior() {
  try {
    executor_ = device_.make_executor();
    const auto& parameters = context_->parameters();
    std::vector<bool> takes_rows;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i)
      takes_rows.push_back(executor_->takes_rows(i));
    binding_.emplace(parameters, std::move(takes_rows));
  } catch (const device_error& error) {
    fail(error);
  } catch (const input_error& error) {
    fail(error);
  }
  return {
    [this](const train_batch& x) {
      if (executor_)
        on_train(x);
    },
    [this](const more_weights& x) {
      if (executor_)
        on_weights(x);
    },
    [this](const reduction& x) { on_sums(x); },
    [this](const broken& x) { send(listener_, x); },
  };
}

void trainer::fail(const std::exception& error) {
  executor_ = nullptr;
  send(listener_, broken{device_.name + ": " + error.what()});
}

void trainer::on_exit() {
  sums_ = nullptr;
}

void trainer::on_train(const train_batch& x) {
  batch_ = x.batch;
  next_ = x.next;
  if (sums_)
    batch_.batches.resize(context_->job.accumulate());
  at_ = 0;
  sums_asked_ = 0;
  weights_complete_ = false;
  ran_ = false;
  taken_ = x.where == residence::host;
  computing_ = true;
  where_ = x.where;
  make_gradient();
  done_ = {};
  done_.step = x.step;
  done_.samples = batch_.rows;
  begin_batch();
  on_weights({x.step, x.weights, x.last});
}

void trainer::make_gradient() {
  const auto elements = context_->parameters().size();
  touched_.reset();
  if (stays()) {
    gradient_ = {};
    return;
  }
  if (batch_.touched && context_->protocol.weights == weights_at::shards) {
    touched_ = ranges_of(*batch_.touched, {0, elements});
    table_rows_ = intersect(*touched_, tables_);
    gradient_ = memory_.take(table_rows_);
  } else {
    gradient_ = payload::floats(elements);
  }
  if (rounds_)
    gradient_.mark_rounded();
}

void trainer::begin_batch() {
  repeats_ = false;
  feeds_ = feeds_of(batch_.batches[at_]);
  if (scale_) {
    fed_scale_ = scale_->value();
    feeds_.emplace_back(&fed_scale_);
  }
  announce();
  executor_->restart();
}

std::vector<feed<float>> trainer::feeds_of(const sample_batch& batch) const {
  return {fed_features(batch, context_->data.features),
          fed(batch.labels, context_->data.labels == label_kind::classes)};
}

/// Tells the executor the batch after the current one, which may be in the next step. A GPU can
/// then copy it in advance.
void trainer::announce() {
  announced_ = {};
  const bool here = !last_batch();
  if (!here && !next_)
    return;
  const auto& batch = here ? batch_.batches[at_ + 1] : next_->samples;
  next_feeds_ = feeds_of(batch);
  announced_ = {here ? batch_number(batch_.ticket, at_ + 1) : batch_number(next_->ticket, 0),
                batch.rows, next_feeds_};
}

void trainer::on_weights(const more_weights& x) {
  if (x.step != done_.step)
    return;
  for (auto& part : x.weights)
    binding_->add(part);
  weights_complete_ = x.last;
  proceed();
}

void trainer::on_sums(const reduction& x) {
  if (!executor_)
    return;
  const auto bytes = x.sum.bytes();
  std::vector<double> totals(bytes.size() / sizeof(double));
  std::memcpy(totals.data(), bytes.data(), bytes.size());
  try {
    executor_->give_sums(totals, x.samples);
  } catch (const device_error& error) {
    fail(error);
    return;
  }
  send(listener_, batch_waits{false});
  proceed();
}

void trainer::request_sums(std::span<const double> own) {
  auto values = payload::allocate(own.size_bytes());
  std::memcpy(values.mutable_data(), own.data(), own.size_bytes());
  send(listener_, batch_waits{true});
  send(sums_,
       sum_over_batches{steps_, sums_asked_++, batch_.batches[at_].rows, std::move(values),
                        caf::actor_cast<reduction_listener>(this)});
}

void trainer::proceed() {
  // If all tensors are complete but messages are missing, these messages come from shards that hold
  // no parameters. Begin the step when the last message has arrived.
  if (!weights_complete_
      && std::ranges::find(binding_->pointers(), nullptr) == binding_->pointers().end())
    return;
  try {
    compute();
  } catch (const device_error& error) {
    fail(error);
  }
}

void trainer::compute() {
  if (!std::exchange(taken_, true))
    executor_->take_weights();
  const auto on_bucket = [this](std::size_t bucket) { this->on_bucket(bucket); };
  const auto on_sums = [this](std::span<const double> own) { request_sums(own); };
  const auto next = [&] {
    auto how = arguments();
    how.on_bucket = on_bucket;
    if (sums_)
      how.on_sums = on_sums;
    return how;
  };
  auto how = next();
  while (const auto result = executor_->advance(how)) {
    ran_ = true;
    if (overflows(*result)) {
      begin_batch();
      repeats_ = true;
      how = next();
      continue;
    }
    end_batch(*result);
    if (last_batch()) {
      finish();
      return;
    }
    ++at_;
    begin_batch();
    how = next();
  }
}

run_arguments<float> trainer::arguments() {
  run_arguments<float> result;
  result.rows = batch_.batches[at_].rows;
  result.batch = batch_number(batch_.ticket, at_);
  result.next = announced_;
  result.seed = batch_.batches[at_].seed;
  // Weights in the host's memory are passed for each batch. A GPU may keep them after the first
  // batch of a step, and then needs no further copy.
  if (where_ == residence::host && (!ran_ || !executor_->keeps_weights())) {
    result.weights = binding_->pointers();
    result.parts = binding_->parts();
  }
  result.feeds = feeds_;
  if (stays()) {
    result.accumulates = at_ > 0;
    result.replaces = repeats_;
  } else {
    result.gradient = gradient_.as_mutable_floats();
  }
  result.tables_cleared = touched_ && !ran_;
  if (result.tables_cleared)
    result.table_rows = &table_rows_;
  return result;
}

/// With float16: checks the batch's gradient. Returns true if the batch must be computed again,
/// because its gradient overflowed. Otherwise removes the loss scale and adds up the gradient.
bool trainer::overflows(const run_result& result) {
  if (!scale_)
    return false;
  const auto& parameters = context_->parameters();
  if (stays() && at_ > 0 && !std::isfinite(done_.squared_norm))
    return false; // The sum of the earlier batches is not finite already.
  if (stays() ? std::isfinite(result.squared_norm) : is_finite(parameters, gradient_.as_floats())) {
    scale_->succeeded();
  } else if (std::isfinite(result.loss) && scale_->overflowed()) {
    // This branch is only for a finite loss: if the loss is not finite, a smaller scale does not
    // help.
    spdlog::debug("{}: the gradient overflowed in float16; the loss scale is {} now", device_.name,
                  scale_->value());
    return true;
  }
  if (stays())
    return false; // The executor has removed the scale.
  remove_scale(parameters, fed_scale_, gradient_.as_mutable_floats());
  for (std::size_t i = 0; i < context_->training->buckets().size(); ++i)
    add_bucket(i);
  return false;
}

void trainer::on_bucket(std::size_t bucket) {
  if (!scale_)
    add_bucket(bucket);
}

void trainer::add_bucket(std::size_t bucket) {
  const auto& buckets = context_->training->buckets();
  const auto where = buckets[bucket].elements;
  // The sum over batches and the norm are computed here, while the bucket is in the cache.
  const auto part = gradient_.as_mutable_floats().subspan(where.begin, where.size());
  if (at_ > 0)
    accumulate(part, std::span<const float>{sum_}.subspan(where.begin, where.size()));
  if (!last_batch()) {
    sum_.resize(gradient_.as_floats().size());
    std::ranges::copy(part, sum_.begin() + static_cast<std::ptrdiff_t>(where.begin));
    return;
  }
  const auto& parameters = context_->parameters();
  const auto nonzero = touched_ ? cut(*touched_, where) : range_list{{0, where.size()}};
  if (rounds_)
    for (const auto& x : nonzero)
      round_to_bfloat16(parameters, {where.begin + x.begin, where.begin + x.end},
                        part.subspan(x.begin, x.size()));
  done_.squared_norm += squared_norm(parameters, where, part, nonzero);
  // The last bucket is handed over by finish(). At that time, the loss is known, and
  // check_gradient() may have changed this bucket.
  if (bucket + 1 < buckets.size())
    hand_over(bucket);
}

void trainer::hand_over(std::size_t bucket) {
  const auto where = context_->training->buckets()[bucket].elements;
  send(synchronizer_, contribute{done_.step, where.begin, where.end, batch_.rows, gradient_});
}

void trainer::end_batch(const run_result& result) {
  done_.loss_sum += result.loss;
  if (stays())
    done_.squared_norm = result.squared_norm;
  if (!std::isfinite(result.loss) && done_.not_finite.empty())
    done_.not_finite = loss_not_finite();
}

void trainer::finish() {
  const auto& buckets = context_->training->buckets();
  check_gradient();
  if (scale_)
    done_.loss_scale = scale_->state();
  if (const auto text = executor_->take_notice(); !text.empty())
    spdlog::warn("{}: {}", device_.name, text);
  const sent_together step;
  for (auto i = stays() ? 0 : buckets.size() - 1; i < buckets.size(); ++i)
    hand_over(i);
  binding_->clear();
  batch_ = {};
  uploading_ = std::exchange(next_, std::nullopt);
  gradient_ = {};
  computing_ = false;
  ++steps_;
  send(listener_, std::move(done_));
}

/// Writes NaN to the last bucket of a gradient in the host's memory. The element may be outside of
/// `touched_`, so the memory must not be used again.
void trainer::spoil_gradient() {
  gradient_.as_mutable_floats()[context_->training->buckets().back().elements.begin] =
    std::numeric_limits<float>::quiet_NaN();
  memory_ = cleared_memory{context_->parameters().size()};
}

/// If the loss is not finite, writes NaN to the gradient, so that other workers notice it. If only
/// the gradient is not finite, finds the first tensor that is not finite.
void trainer::check_gradient() {
  const auto& parameters = context_->parameters();
  if (!std::isfinite(done_.loss_sum)) {
    done_.squared_norm = std::numeric_limits<double>::quiet_NaN();
    if (stays())
      executor_->spoil_gradient();
    else
      spoil_gradient();
  } else if (!std::isfinite(done_.squared_norm)) {
    std::vector<float> read;
    if (stays()) {
      read.resize(parameters.size());
      executor_->read_gradient(read);
    }
    done_.not_finite = "the gradient of "
      + first_not_finite(parameters, {0, parameters.size()},
                         stays() ? std::span<const float>{read} : gradient_.as_floats());
  }
}

// Runs the batch again to find the first tensor that is not finite. Other actors may still read the
// gradient of the first run, so this run uses another buffer.
std::string trainer::loss_not_finite() {
  auto spare = payload::floats(context_->parameters().size());
  binding_->gather();
  auto how = arguments();
  if (where_ == residence::host) {
    how.weights = binding_->pointers();
    how.parts = binding_->parts();
  }
  how.gradient = spare.as_mutable_floats();
  how.tables_cleared = false;
  how.table_rows = nullptr;
  return executor_->find_not_finite(how);
}

} // namespace troupe
