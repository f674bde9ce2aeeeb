#include "actors/parameter_server/ps_synchronizer.hpp"

#include "actors/link/port.hpp"

#include <spdlog/spdlog.h>

#include <utility>

// How gradients and weights are sent in pieces (in_pieces), and how the synchronizer uses weights
// that a shard sends without a pull.

namespace troupe {

// Decides whether the gradient is pushed in pieces. Rows that a batch reads are few, so they are
// sent in one message.
void ps_synchronizer::choose_pieces(std::size_t shard) {
  auto& x = piecewise_[shard];
  x.pushes = options_.in_pieces && !parts_[shard].rows && !parts_[shard].where.empty()
    && is_on_another_host(options_.shards[shard]);
  x.sent = false;
  x.missing.clear();
  for (std::size_t i = 0; x.pushes && i < x.pieces.count(); ++i)
    x.missing.push_back(x.pieces[i].size());
}

void ps_synchronizer::push_pieces(std::size_t shard, range arrived) {
  auto& x = piecewise_[shard];
  for (std::size_t i = 0; i < x.pieces.count(); ++i) {
    const auto where = x.pieces[i];
    const auto part = intersect(where, arrived).size();
    if (part == 0 || (x.missing[i] -= part) > 0)
      continue;
    proto::PushPiece header;
    header.set_view(options_.view);
    *header.mutable_id() = gradient_id();
    header.set_samples(samples_);
    header.set_begin(where.begin);
    options_.board->count_bytes_sent(where.size() * sizeof(float));
    send(caf::actor_cast<piece_taker>(options_.shards[shard]), std::move(header),
         gradient_.slice_floats(where.begin, where.size()));
    x.sent = true;
  }
  report_exchange();
}

void ps_synchronizer::on_new_weights(const proto::NewWeights& x, const payload& values) {
  if (x.shard() >= piecewise_.size())
    return;
  auto& to = piecewise_[x.shard()];
  const auto where = to.pieces.where();
  const bool whole = x.begin() == where.begin && values.as_floats().size() == where.size();
  const auto piece = to.pieces.find(x.begin(), values.as_floats().size());
  if (!whole && !piece) {
    spdlog::warn("worker/{} ignores weights of ps/{} that do not fit: {} elements from {}",
                 options_.worker, x.shard(), values.as_floats().size(), x.begin());
    return;
  }
  if (x.version() < to.version)
    return;
  // Drops the pieces of an older version, because pieces of two versions must not be mixed.
  if (x.version() > to.version)
    to.weights = piece_assembly{to.pieces};
  to.version = x.version();
  if (whole)
    to.weights.set(values);
  else
    to.weights.add(*piece, values.as_floats());
  options_.board->count_bytes_received(values.size());
}

std::optional<weight_range> ps_synchronizer::take_new_weights(std::size_t shard) {
  auto& x = piecewise_[shard];
  if (!has_new_weights(shard))
    return std::nullopt;
  const auto all = std::exchange(x.weights, piece_assembly{x.pieces});
  return weight_range{parts_[shard].where.begin, {x.version}, all.data()};
}

bool ps_synchronizer::has_new_weights(std::size_t shard) const {
  const auto& x = piecewise_[shard];
  return x.weights.complete() && x.version == parts_[shard].told;
}

void ps_synchronizer::forget_new_weights() {
  for (auto& x : piecewise_)
    if (!options_.in_step)
      x.weights = piece_assembly{x.pieces};
}

} // namespace troupe
