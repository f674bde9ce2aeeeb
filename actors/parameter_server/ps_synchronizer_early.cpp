#include "actors/parameter_server/ps_synchronizer.hpp"

#include <algorithm>
#include <utility>

// How weights are pulled before their step begins (pull_ahead).

namespace troupe {

bool ps_synchronizer::awaited(const early_weights& x) const {
  return from_early_ && pulls_open_ > 0 && &x == &ahead_.front();
}

void ps_synchronizer::take_early() {
  // Copies the parts, because the entry of `ahead_` is removed as soon as its last weights are
  // used.
  const auto parts = ahead_.front().parts;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& x = parts[i];
    parts_[i].pulling = true;
    if (x.waits)
      show_early_wait(i);
    else if (!x.weights && (i == 0 || !options_.bounded || parts[0].weights))
      options_.board->await(name_of(i));
  }
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (parts[i].weights)
      use_weights(i, *parts[i].weights);
}

void ps_synchronizer::show_early_wait(std::size_t shard) {
  const auto& x = ahead_.front().parts[shard];
  options_.board->arrived(name_of(shard));
  parts_[shard].slow = x.slow;
  parts_[shard].behind = x.behind;
  show_slow_workers();
}

// At the first step, nothing was pulled early for the next steps. So they also use the weights of
// the first step.
void ps_synchronizer::begin_step() {
  if (options_.pull_ahead == 0)
    return;
  if (from_early_)
    ahead_.pop_front();
  else
    for (std::size_t k = 1; k < options_.pull_ahead; ++k) {
      auto& same = ahead_.emplace_back(early_weights{++tickets_, clock_, {}});
      for (auto& x : ranges_)
        same.parts.push_back({.weights = x});
    }
  ask_early();
}

// Pulls the weights of a later step. With `bounded`, the other shards are asked after shard 0 has
// answered.
void ps_synchronizer::ask_early() {
  auto& x = ahead_.emplace_back(early_weights{++tickets_, clock_, {}});
  x.parts.resize(parts_.size());
  for (std::size_t i = 0; i < (options_.bounded ? 1 : parts_.size()); ++i)
    pull_early(x, i);
  report_exchange();
}

void ps_synchronizer::pull_early(const early_weights& x, std::size_t shard) {
  if (awaited(x))
    options_.board->await(name_of(shard));
  ask(
    this, options_.readers[shard], patience_for_pull(shard),
    [this, shard, ticket = x.ticket](const proto::Weights& header, const payload& data) {
      on_early(ticket, shard, header, data);
    },
    [this, shard, ticket = x.ticket](const caf::error& error) {
      if (std::ranges::find(ahead_, ticket, &early_weights::ticket) != ahead_.end())
        fail("pull weights from", shard, error);
    },
    pull_header(shard, x.clock));
}

void ps_synchronizer::on_early(std::uint64_t ticket, std::size_t shard,
                               const proto::Weights& header, const payload& data) {
  const auto found = std::ranges::find(ahead_, ticket, &early_weights::ticket);
  if (found == ahead_.end() || found->parts[shard].weights)
    return;
  auto& x = found->parts[shard];
  if (header.slow_size() > 0) {
    // The shard's newer message (Advanced) may have overtaken this answer. The worker then need not
    // wait.
    if (parts_[shard].slowest > header.clock() - header.behind()) {
      pull_early(*found, shard);
      return;
    }
    x.waits = true;
    report_exchange();
    x.slow.assign(header.slow().begin(), header.slow().end());
    x.behind = header.behind();
    if (awaited(*found))
      show_early_wait(shard);
    remind();
    return;
  }
  if (!fits(shard, header, data, parts_[shard].where.size()))
    return;
  x.waits = false;
  x.weights = weight_range{header.begin(), {header.version()}, data};
  report_exchange();
  if (options_.bounded && shard == 0)
    for (std::size_t i = 1; i < parts_.size(); ++i)
      pull_early(*found, i);
  if (awaited(*found))
    use_weights(shard, *x.weights);
  else
    serve_later();
}

// Passes all weights of the later step to the worker in one message, because all of them have
// arrived.
void ps_synchronizer::serve_later() {
  if (!later_ || later_->served || ahead_.empty()
      || !std::ranges::all_of(ahead_.front().parts, [](auto& x) { return x.weights.has_value(); }))
    return;
  std::vector<weight_range> ranges;
  for (auto& x : ahead_.front().parts) {
    later_->versions.push_back(x.weights->version);
    ranges.push_back(std::move(*x.weights));
  }
  ahead_.pop_front();
  later_->served = true;
  if (options_.policy)
    options_.policy->read(ranges);
  send(worker_, acquired{{sequence_.next().value}, std::move(ranges), true});
}

void ps_synchronizer::begin_later() {
  if (!later_)
    return;
  const auto x = *std::exchange(later_, std::nullopt);
  if (!x.served) {
    on_acquire(x.attributes);
    return;
  }
  begin_gradient(x.attributes);
  pulls_open_ = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i].base_version = x.versions[i].value;
  ask_early();
  for (auto& contribution : x.contributions)
    on_contribute(contribution);
  if (x.done)
    on_commit(*x.done);
  if (x.abandoned)
    on_abandon({{sequence_.value}});
}

void ps_synchronizer::pull_early_again(std::size_t shard) {
  for (auto& x : ahead_)
    if (std::exchange(x.parts[shard].waits, false))
      pull_early(x, shard);
  report_exchange();
}

} // namespace troupe
