#include "actors/parameter_server/ps_synchronizer.hpp"

#include "actors/link/port.hpp"
#include "messages/scheduler.hpp"
#include "messages/selection.hpp"
#include "messages/zero_pages.hpp"

#include <algorithm>
#include <utility>

// How the weights of a step are pulled from the shards.

namespace troupe {

namespace {

/// Only with `writes`: if other workers have made more than this number of updates since the worker
/// read the weights, it reads them again for its next step.
constexpr std::uint64_t most_missed = 4;

/// A shard in this process gets the rows of a batch if they are at most this part of its range: one
/// of `least_saving` elements.
constexpr std::size_t least_saving = 8;

} // namespace

void ps_synchronizer::begin_pulls() {
  if (!pulls_due_ || pauses_open_ > 0)
    return;
  pulls_due_ = false;
  from_early_ = !ahead_.empty();
  if (from_early_) {
    take_early();
    return;
  }
  for (std::size_t i = 0; i < (options_.bounded ? 1 : parts_.size()); ++i) {
    auto& part = parts_[i];
    if (!std::exchange(part.pulled_next, false)) {
      pull(i);
    } else if (auto x = std::exchange(part.next, std::nullopt)) {
      use_weights(i, std::move(*x));
    } else {
      part.pulling = true;
      options_.board->await(name_of(i));
    }
  }
}

// -- weights of the next step --------------------------------------------------------------------

// True if the worker pulls the weights of its next step together with its commit. A worker that
// pulls only rows cannot do so, because it does not know yet which rows the next batch reads.
bool ps_synchronizer::pulls_next(std::size_t shard) const {
  return !options_.in_step && !options_.bounded && !options_.writes && options_.pull_ahead == 0
    && !(attributes_.rows && is_apart(shard)) && !done_->pauses;
}

bool ps_synchronizer::sends_weights(std::size_t shard) const {
  return shares_memory(options_.shards[shard]) && !parts_[shard].where.empty();
}

void ps_synchronizer::pull_next(std::size_t shard) {
  parts_[shard].pulled_next = true;
  auto header = pull_header(shard, 0);
  header.set_after(sequence_.value);
  ask(
    this, options_.readers[shard], patience_for_pull(shard),
    [this, shard, sequence = sequence_](const proto::Weights& answer, const payload& data) {
      on_next(shard, sequence, answer, data);
    },
    [this, shard](const caf::error& error) { fail("pull weights from", shard, error); }, header);
}

void ps_synchronizer::on_next(std::size_t shard, gradient_sequence sequence,
                              const proto::Weights& header, const payload& data) {
  // The answer has all parameters of the shard, even if the next batch reads only few rows.
  auto& part = parts_[shard];
  if (!fits(shard, header, data, part.where.size()))
    return;
  weight_range x{header.begin(), {header.version()}, data};
  if (sequence == sequence_)
    part.next = std::move(x);
  else if (sequence.next() == sequence_ && part.pulling)
    use_weights(shard, std::move(x));
}

proto::Pull ps_synchronizer::pull_header(std::size_t shard, std::uint64_t clock) const {
  proto::Pull result;
  result.set_view(options_.view);
  result.set_worker(options_.worker);
  if (pulls_rows(shard))
    *result.mutable_rows() = *parts_[shard].rows;
  if (options_.bounded) {
    result.set_clock(clock);
    result.set_begins(paused_);
  }
  return result;
}

// The timeout allows for all pulls in transit, because their answers may share one slow link.
patience ps_synchronizer::patience_for_pull(std::size_t shard) const {
  return options_.requests.for_bytes((1 + options_.pull_ahead) * parts_[shard].where.size()
                                     * sizeof(float));
}

void ps_synchronizer::pull(std::size_t shard) {
  if (auto weights = take_new_weights(shard)) {
    use_weights(shard, *std::move(weights));
    return;
  }
  auto& part = parts_[shard];
  part.waits = false;
  part.pulling = true;
  options_.board->await(name_of(shard));
  ask(
    this, options_.readers[shard], patience_for_pull(shard),
    [this, shard, sequence = sequence_](const proto::Weights& header, const payload& data) {
      on_weights(shard, sequence, header, data);
    },
    [this, shard](const caf::error& error) { fail("pull weights from", shard, error); },
    pull_header(shard, clock_));
}

// -- weights that this worker writes itself ------------------------------------------------------

void ps_synchronizer::read_live() {
  acquired result{{sequence_.value}, {}, true};
  for (auto& part : parts_) {
    auto& weights = part.live->weights();
    auto version = std::exchange(part.kept_version, std::nullopt);
    if (!version || weights.updates() - *version > most_missed) {
      version = weights.updates();
      weights.read(kept_of(part));
    }
    part.base_version = *version;
    result.ranges.push_back({part.where.begin, {part.base_version}, part.kept});
  }
  ranges_.clear();
  send(worker_, result);
}

// Applies the gradient to the shards' weights. Each update also copies the new weights to `kept`,
// for the next step.
void ps_synchronizer::write_live() {
  if (!options_.writes || samples_ == 0 || !done_->finite())
    return;
  const double factor = clip_factor(context_->rule.clip_norm, header_.gradient_norm());
  for (auto& part : parts_) {
    part.live->update(gradient_.slice_floats(part.where.begin, part.where.size()).as_floats(),
                      samples_, factor, kept_of(part));
    part.kept_version = part.live->weights().updates();
  }
  renew_turn();
}

// The memory of `kept`. It is new memory if the trainer still reads the old one.
std::span<float> ps_synchronizer::kept_of(part& x) {
  if (!x.kept.unique())
    x.kept = payload::floats(x.where.size());
  return x.kept.as_mutable_floats();
}

// -- bounded: waiting for slower workers ---------------------------------------------------------

void ps_synchronizer::on_too_early(std::size_t shard, const proto::Weights& x) {
  auto& part = parts_[shard];
  options_.board->arrived(name_of(shard));
  // The shard's newer message (Advanced) may have overtaken this answer. The worker then need not
  // wait.
  if (std::exchange(part.slowest, 0) > x.clock() - x.behind()) {
    pull(shard);
    return;
  }
  part.waits = true;
  part.slow.assign(x.slow().begin(), x.slow().end());
  part.behind = x.behind();
  show_slow_workers();
  remind();
}

void ps_synchronizer::on_idle_check(const idle_check& x) {
  if (x.after.value != sequence_.value)
    return;
  paused_ = true;
  header_.set_pauses(true);
  pauses_open_ = parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    ask(
      this, options_.shards[i], options_.requests,
      [this](const proto::Pushed&) {
        --pauses_open_;
        begin_pulls();
      },
      [this, i](const caf::error& error) { fail("report a pause to", i, error); }, header_);
}

void ps_synchronizer::show_slow_workers() {
  for (const auto i : shown_)
    options_.board->forget({job_kind::worker, i});
  shown_.clear();
  std::uint64_t behind = 0;
  for (auto& part : parts_) {
    behind = std::max(behind, part.behind);
    shown_.insert(shown_.end(), part.slow.begin(), part.slow.end());
  }
  for (const auto i : shown_)
    options_.board->await({job_kind::worker, i});
  options_.board->set_behind(behind);
}

// Decides whether the shard gets the rows that the batch reads. In another process, it gets only
// these rows, and the worker pulls only them. In this process, the rows are worth a message if they
// save the shard most of its update.
void ps_synchronizer::choose_rows(std::size_t shard, const batch_rows& rows) {
  auto& part = parts_[shard];
  if (!rows || options_.writes || !(is_apart(shard) || updates_rows_))
    return;
  const auto [begin, end] = part.where;
  if (selected(*rows, begin, end) <= part.where.size() / (is_apart(shard) ? 2 : least_saving))
    part.rows = cut(*rows, begin, end);
}

bool ps_synchronizer::is_apart(std::size_t shard) const {
  return is_port(options_.readers[shard]);
}

bool ps_synchronizer::pulls_rows(std::size_t shard) const {
  return parts_[shard].rows && is_apart(shard) && options_.pull_ahead == 0;
}

// If the worker pulled only rows: puts them into `kept`, which then has the weights of the shard's
// whole range. If the trainer still reads `kept`, a copy replaces it first.
payload ps_synchronizer::complete_weights(std::size_t shard, const payload& data) {
  if (!pulls_rows(shard))
    return data;
  auto& x = parts_[shard];
  if (!x.kept.unique()) {
    auto fresh = zero_floats(x.where.size());
    std::ranges::copy(x.kept.as_floats(), fresh.as_mutable_floats().begin());
    x.kept = std::move(fresh);
  }
  scatter(*x.rows, x.where.begin, data.as_floats(), x.kept.as_mutable_floats());
  return x.kept;
}

void ps_synchronizer::on_weights(std::size_t shard, gradient_sequence sequence,
                                 const proto::Weights& header, const payload& data) {
  if (sequence != sequence_)
    return;
  auto& part = parts_[shard];
  if (options_.bounded) {
    clock_ = header.clock();
    paused_ = false;
    if (header.slow_size() > 0) {
      on_too_early(shard, header);
      return;
    }
  }
  const auto elements =
    pulls_rows(shard) ? selected(*part.rows, part.where.begin, part.where.end) : part.where.size();
  if (fits(shard, header, data, elements))
    use_weights(shard, {header.begin(), {header.version()}, complete_weights(shard, data)});
}

bool ps_synchronizer::fits(std::size_t shard, const proto::Weights& header, const payload& data,
                           std::size_t elements) {
  const auto& part = parts_[shard];
  if (header.begin() == part.where.begin && header.count() == part.where.size()
      && data.size() == elements * sizeof(float)) {
    options_.board->count_bytes_received(data.size());
    return true;
  }
  fail("use weights of", shard,
       make_error(errc::malformed,
                  "it serves parameters " + std::to_string(header.begin()) + " to "
                    + std::to_string(header.begin() + header.count())));
  return false;
}

void ps_synchronizer::use_weights(std::size_t shard, weight_range x) {
  auto& part = parts_[shard];
  options_.board->arrived(name_of(shard));
  part.base_version = x.version.value;
  part.pulling = false;
  // With in_step, all shards have the same version, which is the number of the step.
  steps_ = x.version;
  ranges_[shard] = std::move(x);
  if (options_.first_decides)
    hand_on_if_of_one_version();
  else
    hand_on(shard);
}

void ps_synchronizer::hand_on(std::size_t shard) {
  const bool last = --pulls_open_ == 0;
  if (last && options_.policy)
    options_.policy->read(ranges_);
  send(worker_, acquired{{sequence_.value}, {ranges_[shard]}, last});
  if (options_.bounded) {
    parts_[shard].slow.clear();
    parts_[shard].behind = 0;
    show_slow_workers();
    for (std::size_t i = 1; shard == 0 && !from_early_ && i < parts_.size(); ++i)
      pull(i);
  }
  if (!last)
    return;
  begin_step();
  ranges_.clear();
}

// Passes the weights to the worker once all shards have sent the same version. The versions of the
// shards may differ for two reasons. Other workers may finish a step while this worker pulls. Or
// this worker's last gradient was late, and some shards have not yet made the update without it. In
// both cases, the shard announces its newer version, and the worker pulls again.
void ps_synchronizer::hand_on_if_of_one_version(bool ask_again) {
  auto newest = next_version_;
  for (auto& part : parts_)
    newest = std::max(newest, part.base_version);
  bool ready = true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    const bool behind = part.base_version < newest;
    ready = ready && !behind && !part.pulling;
    if (part.pulling || !behind)
      continue;
    ranges_[i] = {}; // Lets the shard use this memory again.
    options_.board->await(name_of(i));
    if (ask_again || part.told >= newest)
      pull(i);
    else
      remind();
  }
  if (!ready)
    return;
  steps_ = {newest};
  for (std::size_t i = 0; i < parts_.size(); ++i)
    hand_on(i);
}

} // namespace troupe
