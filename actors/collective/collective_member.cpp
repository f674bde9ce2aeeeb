#include "actors/collective/collective_member.hpp"

#include "messages/scheduler.hpp"
#include "messages/types.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

caf::error to_error(const collective_failure& x) {
  auto result = make_error(x.code, x.text);
  result.context() += caf::make_message(x);
  return result;
}

std::string rank_text(std::size_t rank) {
  return "rank " + std::to_string(rank);
}

errc to_errc(std::uint32_t code) {
  return code > 0 && code <= static_cast<std::uint32_t>(errc::bad_input) ? static_cast<errc>(code)
                                                                         : errc::failed;
}

} // namespace

std::optional<collective_failure> failure_of(const caf::error& x) {
  const auto& context = x.context();
  if (context.size() == 2 && context.match_element<collective_failure>(1))
    return context.get_as<collective_failure>(1);
  return std::nullopt;
}

collective_member::collective_member(caf::actor_config& cfg, member_options options)
  : super(cfg), options_(options), left_(options.ranks), early_(options) {}

collective_member::behavior_type collective_member::make_behavior() {
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  return {
    [this](const proto::CollectivePiece& x, const payload& data) { on_piece(x, data); },
    [this](const proto::CollectiveQuestion&) {
      proto::CollectiveStanding result;
      result.set_begun(number_);
      result.set_waits(part_.has_value());
      return result;
    },
    [this](const proto::CollectiveFailure& x) { on_failure(x); },
    [this](const proto::CollectiveLeave& x) { on_leave(x); },
    [this](const all_reduce& x) { return on_all_reduce(x); },
    [this](const meet_members& x) { on_meet(x); },
    [this](tick) { on_tick(); },
  };
}

void collective_member::on_exit() {
  proto::CollectiveLeave leave;
  leave.set_from(static_cast<std::uint32_t>(options_.rank));
  leave.set_number(part_ ? number_ - 1 : number_);
  // Other ranks must learn about the failure before this rank ends. Otherwise they would report
  // this rank's end as the failure.
  if (failure_)
    report_failure();
  for (auto& peer : peers_)
    if (peer && !failure_)
      send(peer, leave);
  for (auto& x : requests_)
    x.answer.deliver(make_error(errc::interrupted, "this rank of the collective has ended"));
  requests_.clear();
  part_.reset();
  early_.take();
  peers_.clear();
}

// -- the program --------------------------------------------------------------------------------

caf::result<all_reduced> collective_member::on_all_reduce(const all_reduce& x) {
  if (failure_)
    return to_error(*failure_);
  if (x.values.size() % bytes_of(x.kind) != 0)
    return make_error(errc::bad_input,
                      "an all-reduce of " + std::to_string(x.values.size())
                        + " bytes: " + to_string(x.kind) + " has "
                        + std::to_string(bytes_of(x.kind)) + " bytes each");
  if (!aligned(x.kind, x.values))
    return make_error(errc::bad_input,
                      std::string{"an all-reduce of "} + to_string(x.kind)
                        + " whose bytes do not begin at a multiple of "
                        + std::to_string(bytes_of(x.kind)) + ": copy them");
  if (x.values.size() > options_.max_bytes)
    return make_error(errc::bad_input,
                      "an all-reduce of " + std::to_string(x.values.size())
                        + " bytes: the group allows " + std::to_string(options_.max_bytes)
                        + " (max_bytes)");
  auto answer = make_response_promise<all_reduced>();
  requests_.push_back({x, answer});
  begin_next();
  return answer;
}

void collective_member::on_meet(const meet_members& x) {
  peers_ = x.peers;
  for (auto& peer : peers_)
    if (peer)
      monitor(peer);
  if (failure_) // found before the other members were known
    report_failure();
  begin_next();
}

void collective_member::begin_next() {
  if (part_ || requests_.empty() || peers_.empty() || failure_)
    return;
  const auto& what = requests_.front().what;
  ring_place place{options_.rank, options_.ranks, options_.chunk_bytes / bytes_of(what.kind)};
  place.elements = what.kind;
  header_ = whole_of(options_, ++number_, what.kind, what.values.size() / bytes_of(what.kind));
  moved_ = clock().now();
  std::vector<addressed_piece> pieces;
  try {
    part_.emplace(schedule(), place, what.values, pieces);
  } catch (const std::exception& error) {
    blame(errc::failed, options_.rank, std::string{"cannot take part: "} + error.what());
    return;
  }
  for (std::size_t r = 0; r < options_.ranks; ++r)
    if (left_[r] && *left_[r] < number_) {
      blame(errc::failed, r, "has left after all-reduce " + std::to_string(*left_[r]));
      return;
    }
  send_all(std::move(pieces));
  for (auto& x : early_.take())
    if (part_)
      take(x.header, x.data);
  if (part_)
    remind();
  finish_if_complete();
}

// -- other ranks --------------------------------------------------------------------------------

void collective_member::on_piece(const proto::CollectivePiece& x, const payload& data) {
  if (failure_)
    return;
  if (part_ && x.number() == number_)
    take(x, data);
  else if (x.number() != number_ + 1)
    blame(errc::malformed, x.from(),
          "sent a piece of all-reduce " + std::to_string(x.number())
            + ", which is not due: the two ranks make different all-reduces");
  else if (const auto refused = early_.keep(x, data); !refused.empty())
    blame(errc::malformed, x.from(), refused);
  finish_if_complete();
}

void collective_member::take(const proto::CollectivePiece& x, const payload& data) {
  const auto kind = static_cast<element_kind>(header_.kind());
  auto problem = misfit(x, header_, "this rank");
  if (problem.empty() && !aligned(kind, data))
    problem = misfit(x, "its bytes are not aligned");
  std::vector<addressed_piece> pieces;
  auto fate = piece_fate::repeated;
  if (problem.empty())
    fate = part_->receive(x.from(), {x.segment(), x.chunk(), x.step(), 0, data}, pieces);
  if (refused(fate))
    problem = misfit(x, describe(fate));
  if (!problem.empty()) {
    blame(errc::malformed, x.from(), problem);
    return;
  }
  if (fate == piece_fate::taken)
    moved_ = clock().now();
  send_all(std::move(pieces));
}

void collective_member::send_all(std::vector<addressed_piece> pieces) {
  bool large = false;
  for (auto& [to, piece] : pieces) {
    large = large || piece.data.size() > small_piece;
    auto header = header_;
    header.set_segment(piece.segment);
    header.set_chunk(piece.chunk);
    header.set_step(piece.hop);
    send(peers_[to], std::move(header), std::move(piece.data));
  }
  if (large)
    hand_over_receivers(system());
}

void collective_member::finish_if_complete() {
  if (!part_ || !part_->complete())
    return;
  auto done = std::move(requests_.front());
  requests_.pop_front();
  all_reduced result{part_->sum()};
  part_.reset();
  inquiry_.reset();
  done.what = {};
  done.answer.deliver(std::move(result));
  begin_next();
}

void collective_member::on_leave(const proto::CollectiveLeave& x) {
  if (x.from() >= options_.ranks)
    return;
  left_[x.from()] = x.number();
  if (part_ && x.number() < number_)
    blame(errc::failed, x.from(), "has left after all-reduce " + std::to_string(x.number()));
}

// Another rank has ended. If it has sent CollectiveLeave before, this is normal. Otherwise it is a
// failure.
void collective_member::on_down(const caf::down_msg& x) {
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r] && peers_[r].address() == x.source && !left_[r])
      blame(errc::link_lost, r, "is gone: " + explain(x.reason));
}

// -- deadlines ----------------------------------------------------------------------------------

void collective_member::remind() {
  if (!std::exchange(reminded_, true))
    delayed_send(this, std::max(options_.deadline / 8, std::chrono::milliseconds{1}), tick{});
}

void collective_member::on_tick() {
  reminded_ = false;
  if (!part_)
    return;
  if (!inquiry_ && clock().now() - moved_ >= options_.deadline)
    inquire();
  remind();
}

void collective_member::inquire() {
  // A rank that finished this all-reduce and then left is not at fault, so it is not asked.
  const auto is_asked = [this](std::size_t r) {
    return peers_[r] && !(left_[r] && *left_[r] >= number_);
  };
  inquiry_ = inquiry{clock().now(), 0, true, options_.ranks, {}};
  for (std::size_t r = 0; r < options_.ranks; ++r)
    inquiry_->open += is_asked(r) ? 1 : 0;
  if (inquiry_->open == 0) {
    inquiry_.reset();
    blame(errc::timed_out, part_->awaited_ranks().front(), "has left before it sent its part");
    return;
  }
  const auto number = number_;
  for (std::size_t r = 0; r < options_.ranks; ++r)
    if (is_asked(r))
      request(peers_[r], options_.deadline / 2, proto::CollectiveQuestion{})
        .then(
          [this, number, r](const proto::CollectiveStanding& x) {
            if (number == number_)
              heard(r, true, x.begun() < number && !x.waits() ? "has not begun it" : "");
          },
          [this, number, r](const caf::error& error) {
            if (number == number_)
              heard(r, false, "does not answer: " + explain(error));
          });
}

void collective_member::heard(std::size_t rank, bool answers, const std::string& fault) {
  if (!part_ || !inquiry_)
    return;
  if (!fault.empty() && std::tie(answers, rank) < std::tie(inquiry_->answers, inquiry_->rank)) {
    inquiry_->answers = answers;
    inquiry_->rank = rank;
    inquiry_->fault = fault;
  }
  if (--inquiry_->open > 0)
    return;
  const auto result = std::move(*inquiry_);
  inquiry_.reset();
  if (moved_ > result.since)
    return;
  if (result.fault.empty())
    blame(errc::timed_out, part_->awaited_ranks().front(),
          "answers, but its part has not arrived: the network or its host is too slow for this "
          "deadline");
  else
    blame(errc::timed_out, result.rank, result.fault);
}

// -- failure ------------------------------------------------------------------------------------

void collective_member::blame(errc code, std::size_t rank, const std::string& what) {
  collective_failure why;
  why.code = code;
  why.rank = rank;
  why.number = part_ ? number_ : number_ + 1;
  why.text = rank_text(rank) + ' ' + what + " (";
  if (part_) {
    why.step = part_->awaited_step();
    why.waited = std::chrono::floor<std::chrono::milliseconds>(clock().now() - moved_);
    why.text += rank_text(options_.rank) + " of " + std::to_string(options_.ranks)
      + " waits in all-reduce " + std::to_string(number_) + ", step " + std::to_string(why.step)
      + " of " + std::to_string(steps_of(schedule(), options_.ranks)) + ", for "
      + std::to_string(why.waited.count()) + " ms)";
  } else {
    why.text += "found by " + rank_text(options_.rank) + " of " + std::to_string(options_.ranks)
      + ", which has not begun all-reduce " + std::to_string(why.number) + ')';
  }
  fail(std::move(why), true);
}

void collective_member::on_failure(const proto::CollectiveFailure& x) {
  fail({to_errc(x.code()), x.rank(), x.number(), x.step(), std::chrono::milliseconds{x.waited_ms()},
        x.text()},
       false);
}

void collective_member::fail(collective_failure why, bool tell) {
  if (failure_)
    return;
  failure_ = std::move(why);
  if (tell)
    report_failure();
  part_.reset();
  early_.take();
  for (auto& x : std::exchange(requests_, {}))
    x.answer.deliver(to_error(*failure_));
}

void collective_member::report_failure() {
  proto::CollectiveFailure news;
  news.set_code(static_cast<std::uint32_t>(failure_->code));
  news.set_rank(static_cast<std::uint32_t>(failure_->rank));
  news.set_number(failure_->number);
  news.set_step(failure_->step);
  news.set_waited_ms(static_cast<std::uint64_t>(failure_->waited.count()));
  news.set_text(failure_->text);
  for (auto& peer : peers_)
    if (peer)
      send(peer, news);
}

} // namespace troupe
