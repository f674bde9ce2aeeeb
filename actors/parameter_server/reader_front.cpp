#include "actors/parameter_server/reader_front.hpp"

#include "messages/errors.hpp"
#include "messages/selection.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Largest number of waiting pulls. It is much larger than the number of workers of any job,
/// because a worker repeats a pull that is answered late.
constexpr std::size_t most_waiting = 4096;

} // namespace

reader_front::reader_front(caf::actor_config& cfg, std::uint64_t view, range where,
                           std::shared_ptr<const version_pool> versions,
                           std::shared_ptr<pulled_versions> pulled,
                           std::shared_ptr<activity_board> board, std::shared_ptr<read_gate> gate,
                           std::shared_ptr<const version_pool> averages,
                           std::shared_ptr<live_weights> live,
                           std::shared_ptr<rounded_versions> rounded)
  : super(cfg), view_(view), where_(where), versions_(std::move(versions)),
    pulled_(std::move(pulled)), board_(std::move(board)), gate_(std::move(gate)),
    averages_(std::move(averages)), live_(std::move(live)), rounded_(std::move(rounded)) {}

reader_front::behavior_type reader_front::make_behavior() {
  return {
    in_view(this, &reader_front::on_pull),
    [this](const gradient_decided& x) { on_decided(x); },
  };
}

void reader_front::on_exit() {
  for (auto& x : waiting_)
    x.answer.deliver(make_error(errc::link_lost, "a reader ends"));
  waiting_.clear();
}

caf::result<proto::Weights, payload> reader_front::on_pull(const proto::Pull& x) {
  if (const auto problem = problem_of(x.rows()); !problem.empty())
    return make_error(errc::malformed, "a pull that cannot be served: " + problem);
  if (is_decided(x)) {
    auto [header, values] = weights_for(x);
    return {std::move(header), std::move(values)};
  }
  if (waiting_.size() >= most_waiting)
    return make_error(errc::malformed, "too many workers pull");
  waiting_.push_back({x, make_response_promise<proto::Weights, payload>()});
  return waiting_.back().answer;
}

bool reader_front::is_decided(const proto::Pull& x) const {
  const auto newest = decided_.find(x.worker());
  return x.after() == 0 || (newest != decided_.end() && x.after() <= newest->second);
}

void reader_front::on_decided(const gradient_decided& x) {
  auto& newest = decided_[x.worker];
  newest = std::max(newest, x.sequence);
  std::erase_if(waiting_, [this](auto& pull) {
    if (!is_decided(pull.header))
      return false;
    auto [header, values] = weights_for(pull.header);
    pull.answer.deliver(std::move(header), std::move(values));
    return true;
  });
}

std::pair<proto::Weights, payload> reader_front::weights_for(const proto::Pull& x) {
  proto::Weights header;
  header.set_begin(where_.begin);
  header.set_count(where_.size());
  const bool averaged = averages_ && !x.has_worker();
  auto newest = (averaged ? averages_ : versions_)->newest();
  if (live_ && !averaged)
    newest.data = live_->copy();
  if (gate_ && x.has_worker()) {
    auto found = gate_->read(x);
    header.set_clock(found.clock);
    if (!found.weights) {
      header.set_behind(found.behind);
      header.mutable_slow()->Assign(found.slow.begin(), found.slow.end());
      return {std::move(header), payload{}};
    }
    newest = std::move(*found.weights);
  }
  if (pulled_ && x.has_worker())
    pulled_->note(x.worker(), newest);
  auto values = std::move(newest.data);
  const bool rounds = rounded_ && x.has_worker();
  if (x.has_rows() && rounds) {
    values = rounded_->rows(x.rows(), values.as_floats());
  } else if (x.has_rows()) {
    auto some = payload::floats(selected(x.rows(), where_.begin, where_.end));
    gather(x.rows(), where_.begin, values.as_floats(), some.as_mutable_floats());
    values = std::move(some);
  } else if (rounds) {
    values = rounded_->whole({newest.version, std::move(values)});
  }
  if (board_)
    board_->count_bytes_sent(values.size());
  header.set_version(newest.version);
  return {std::move(header), std::move(values)};
}

} // namespace troupe
