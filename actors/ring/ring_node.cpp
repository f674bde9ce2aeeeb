#include "actors/ring/ring_node.hpp"

namespace troupe {

ring_node::ring_node(caf::actor_config& cfg, std::uint64_t view, ring_place place,
                     std::vector<std::size_t> sizes, std::shared_ptr<activity_board> board)
  : super(cfg), view_(view), place_(place), sizes_(std::move(sizes)), board_(std::move(board)),
    next_step_(sizes_.size(), 0) {}

ring_node::behavior_type ring_node::make_behavior() {
  set_down_handler([this](caf::down_msg& x) {
    fail("lost its right neighbour " + to_string(right_task_) + ": " + explain(x.reason));
  });
  return {
    in_view(this, &ring_node::on_segment),
    [this](const reduce_bucket& x) { on_reduce(x); },
    [this](const ring_neighbour& x) {
      right_task_ = x.task;
      right_ = x.right;
      left_task_ = x.left;
      monitor(right_);
    },
  };
}

void ring_node::on_exit() {
  right_ = nullptr;
  listener_ = nullptr;
}

ring_collective& ring_node::collective(const key& which) {
  return collectives_.try_emplace(which, place_, sizes_[which.second]).first->second;
}

void ring_node::on_reduce(const reduce_bucket& x) {
  const key which{x.step, x.bucket};
  listener_ = x.reply_to;
  if (!broken_.empty()) {
    send(listener_, broken{broken_});
    return;
  }
  collective(which).contribute(x.gradient, x.samples, outbox_);
  ++contributed_;
  tell_waiting();
  send_pieces(which);
  finish_if_complete(which);
}

void ring_node::on_segment(const proto::Segment& x, const payload& data) {
  board_->count_received();
  const bool known = x.bucket() < sizes_.size();
  if (known && x.step() < next_step_[x.bucket()])
    return;
  const key which{x.step(), x.bucket()};
  const bool fits = known && x.step() <= next_step_[x.bucket()] + 1
    && collective(which).receive({x.segment(), x.chunk(), x.hop(), x.samples(), data}, outbox_);
  if (!fits) {
    fail("got a piece that does not fit (step " + std::to_string(x.step()) + ", bucket "
         + std::to_string(x.bucket())
         + "): its left neighbour has another model or number of ranks");
    return;
  }
  send_pieces(which);
  finish_if_complete(which);
}

void ring_node::fail(const std::string& reason) {
  broken_ = "rank " + std::to_string(place_.rank) + " of the ring " + reason;
  if (listener_)
    send(listener_, broken{broken_});
}

void ring_node::send_pieces(const key& which) {
  if (!outbox_.empty())
    board_->count_sent(outbox_.size());
  for (auto& piece : outbox_) {
    proto::Segment header;
    header.set_view(view_);
    header.set_step(which.first);
    header.set_bucket(which.second);
    header.set_segment(piece.segment);
    header.set_chunk(piece.chunk);
    header.set_hop(piece.hop);
    header.set_samples(piece.samples);
    send(right_, std::move(header), std::move(piece.data));
  }
  outbox_.clear();
}

void ring_node::finish_if_complete(const key& which) {
  auto i = collectives_.find(which);
  if (i == collectives_.end() || !i->second.complete())
    return;
  send(listener_, bucket_reduced{which.first, which.second, i->second.samples(), i->second.sum()});
  next_step_[which.second] = which.first + 1;
  collectives_.erase(i);
  --contributed_;
  tell_waiting();
}

// A rank that has nothing under way waits for no other, but for its own synchronizer.
void ring_node::tell_waiting() {
  if (contributed_ > 0 && place_.ranks > 1)
    board_->await(left_task_);
  else
    board_->arrived(left_task_);
}

} // namespace troupe
