#include "actors/ring/ring_node.hpp"

#include "actors/link/sent_together.hpp"
#include "messages/scheduler.hpp"

namespace troupe {

ring_node::ring_node(caf::actor_config& cfg, std::uint64_t view, ring_place place,
                     std::vector<std::size_t> sizes, std::shared_ptr<activity_board> board,
                     const std::vector<std::size_t>& sums)
  : super(cfg), view_(view), rank_(place.rank), reductions_(place, std::move(sizes), sums),
    board_(std::move(board)) {}

ring_node::behavior_type ring_node::make_behavior() {
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  return {
    in_view(this, &ring_node::on_segment),
    [this](const reduce_bucket& x) { on_reduce(x); },
    [this](const sum_over_batches& x) { on_sum(x); },
    [this](const ring_neighbour& x) {
      right_task_ = x.task;
      right_ = x.right;
      left_task_ = x.left;
      watch(right_.address(), left_.address());
    },
    [this](const left_neighbour& x) {
      left_task_ = x.task;
      left_ = x.left;
      watch(left_.address(), right_.address());
    },
    in_view(this, &ring_node::on_report),
  };
}

void ring_node::on_exit() {
  right_ = nullptr;
  left_ = nullptr;
  listener_ = nullptr;
  waiting_.clear();
}

void ring_node::on_reduce(const reduce_bucket& x) {
  listener_ = x.reply_to;
  if (!broken_.reason.empty()) {
    send(listener_, broken_);
    return;
  }
  step_ = x.own.id.step;
  waiting_[x.own.id] = listener_;
  report_waiting();
  ring_reductions::effects result;
  reductions_.contribute(x.own, result);
  act(std::move(result));
}

void ring_node::on_sum(const sum_over_batches& x) {
  const reduction_id id{x.step, 0, reductions_.first_sum() + x.number};
  on_reduce({{id, x.samples, x.values}, x.reply_to});
}

void ring_node::on_segment(const proto::Segment& x, const payload& data) {
  board_->count_received(clock().now());
  board_->count_bytes_received(data.size());
  ring_reductions::effects result;
  const auto fate =
    reductions_.receive({x.step(), x.attempt(), x.bucket()},
                        {x.segment(), x.chunk(), x.hop(), x.samples(), data}, result);
  if (refused(fate))
    fail("got a piece that does not fit (step " + std::to_string(x.step()) + ", bucket "
         + std::to_string(x.bucket()) + ", segment " + std::to_string(x.segment()) + ", chunk "
         + std::to_string(x.chunk()) + ", hop " + std::to_string(x.hop()) + ": " + describe(fate)
         + "): its left neighbour has another model or number of ranks");
  act(std::move(result));
}

void ring_node::act(ring_reductions::effects result) {
  renew_turn(); // After a long sum, receivers still run on this thread.
  if (!result.send.empty())
    board_->count_sent(result.send.size());
  for (auto& [id, piece] : result.send) {
    proto::Segment header;
    header.set_view(view_);
    header.set_step(id.step);
    header.set_attempt(id.attempt);
    header.set_bucket(id.bucket);
    header.set_segment(piece.segment);
    header.set_chunk(piece.chunk);
    header.set_hop(piece.hop);
    header.set_samples(piece.samples);
    board_->count_bytes_sent(piece.data.size());
    send(right_, std::move(header), std::move(piece.data));
  }
  if (!result.done)
    return;
  // Sends the pieces before this rank makes its update, so that the right neighbour does not wait
  // for the update.
  sent_together::send_now();
  const auto starter = waiting_.extract(result.done->id);
  report_waiting();
  send(starter.mapped(), std::move(*result.done));
}

// Shows on the board whether this rank waits for its left neighbour, and in which bucket. If no
// collective runs, this rank waits only for its own synchronizer.
void ring_node::report_waiting() {
  const bool waits = !waiting_.empty() && reductions_.ranks() > 1;
  const auto now = clock().now();
  board_->exchange(waits, now);
  ring_position here{rank_, reductions_.ranks(), step_};
  if (waits)
    here.bucket = waiting_.begin()->first.bucket;
  here.since = now;
  board_->set_ring(here);
  if (waits)
    board_->await(left_task_);
  else if (reductions_.ranks() > 1)
    board_->arrived(left_task_);
}

caf::result<proto::Report> ring_node::on_report(const proto::ReportRequest&) {
  proto::Report result;
  result.set_duplicates(reductions_.repeated());
  return result;
}

// Monitors a neighbour. In a ring of two, both neighbours are the same actor, which is monitored
// only once.
void ring_node::watch(const caf::actor_addr& neighbour, const caf::actor_addr& other) {
  if (neighbour != other)
    monitor(caf::actor_cast<caf::strong_actor_ptr>(neighbour));
}

void ring_node::on_down(const caf::down_msg& x) {
  const bool right = right_.address() == x.source;
  const auto& task = right ? right_task_ : left_task_;
  fail(std::string{"lost its "} + (right ? "right" : "left") + " neighbour " + to_string(task)
         + ": " + explain(x.reason),
       task);
}

void ring_node::fail(const std::string& reason, const std::optional<task_name>& lost) {
  broken_ = {"rank " + std::to_string(rank_) + " of the ring " + reason, false, lost};
  if (listener_)
    send(listener_, broken_);
}

} // namespace troupe
