// How a shard receives gradients and sends weights in pieces, and how it sends weights without a
// pull.

#include "actors/parameter_server/parameter_shard.hpp"

#include "actors/link/port.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace troupe {

// A piece gets no answer. If the shard ignores a piece, the gradient is incomplete when it is
// committed, and the worker sends all of it again.
void parameter_shard::on_push_piece(const proto::PushPiece& x, const payload& values) {
  const auto piece = pieces_.pieces().find(x.begin(), values.as_floats().size());
  if (!options_.in_pieces || !piece || x.samples() == 0 || refusal(x.id())) {
    spdlog::warn("ps/{} ignores a piece of a gradient of worker/{}, which does not fit: {} "
                 "elements from {}, of {} samples",
                 options_.index, x.id().worker(), values.as_floats().size(), x.begin(),
                 x.samples());
    return;
  }
  options_.board->count_bytes_received(values.size());
  if (decided(x.id()))
    return;
  const auto rank = rank_of(x.id().worker());
  auto whole = pieces_.add(rank, x.id(), x.samples(), *piece, values.as_floats());
  prepare_pieces();
  if (!whole.empty())
    stage(x.id(), std::move(whole));
}

std::size_t parameter_shard::rank_of(std::uint32_t worker) const {
  const auto i = std::ranges::find(workers_, worker, [](const member& x) { return x.task.index; });
  return static_cast<std::size_t>(i - workers_.begin());
}

void parameter_shard::prepare_pieces() {
  if (!pieces_.under_way())
    return;
  for (std::size_t i = 0; i < pieces_.pieces().count(); ++i) {
    if (updater_.staged(i) || !pieces_.ready(i))
      continue;
    slot_reserved_ = slot_reserved_ || versions_->begin();
    if (!slot_reserved_)
      return; // Readers use all slots.
    updater_.stage(i, versions_->published(), pieces_.sum(i), pieces_.samples(), versions_->next());
    last_piece_ = i;
    if (!updater_.all_staged())
      send_piece(i, versions_->version() + 1);
  }
}

void parameter_shard::drop_pieces() {
  updater_.discard();
  slot_reserved_ = false;
}

void parameter_shard::send_piece(std::size_t piece, std::uint64_t version) {
  const auto where = pieces_.pieces()[piece];
  proto::NewWeights header;
  header.set_view(options_.view.number);
  header.set_shard(options_.index);
  header.set_version(version);
  header.set_begin(where.begin);
  auto values = versions_->part_of_next(where.begin - options_.where.begin, where.size());
  if (options_.rounded)
    values = options_.rounded->part(where, values.as_floats());
  for (std::size_t rank = 0; rank < listeners_.size(); ++rank)
    if (pieces_.sends_pieces(rank)) {
      options_.board->count_bytes_sent(values.size());
      send(caf::actor_cast<new_weights_taker>(listeners_[rank]), header, values);
    }
}

void parameter_shard::send_whole(std::size_t rank) {
  if (policy_->chooses() || options_.where.empty() || rank >= listeners_.size())
    return;
  const auto& to = listeners_[rank];
  if (!shares_memory(to) || with_rows_.contains(workers_[rank].task.index) || is_fenced(rank))
    return;
  auto newest = versions_->newest();
  if (options_.pulled)
    options_.pulled->note(workers_[rank].task.index, newest);
  if (options_.rounded)
    newest.data = options_.rounded->whole(newest);
  proto::NewWeights header;
  header.set_view(options_.view.number);
  header.set_shard(options_.index);
  header.set_version(newest.version);
  header.set_begin(options_.where.begin);
  options_.board->count_bytes_sent(newest.data.size());
  send(caf::actor_cast<new_weights_taker>(to), std::move(header), std::move(newest.data));
}

void parameter_shard::send_next_weights(const proto::Commit& x) {
  if (options_.reader && policy_->needs_gradients() && context_->job.pull_ahead() == 0
      && !x.pauses())
    send_whole(rank_of(x.id().worker()));
}

bool parameter_shard::is_fenced(std::size_t rank) const {
  proto::GradientId id;
  id.set_worker(workers_[rank].task.index);
  id.set_incarnation(workers_[rank].incarnation);
  return journal_.fenced(id);
}

} // namespace troupe
