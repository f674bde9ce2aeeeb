#include "actors/checkpoint/checkpoint_assembly.hpp"

#include "actors/checkpoint/checkpoint_schedule.hpp"

#include <algorithm>
#include <span>

namespace troupe {

namespace {

/// Largest number of versions in `left_out_`.
constexpr std::size_t most_remembered = 64;

/// Largest number of small versions that are copied while they wait to be written or evaluated (see
/// checkpoint_assembly).
constexpr std::size_t most_copied = 8;

payload copy_of(const payload& x) {
  auto result = payload::allocate(x.size());
  std::ranges::copy(x.bytes(), result.mutable_data());
  return result;
}

} // namespace

proto::Decided assembled_checkpoint::least(std::uint32_t worker, std::uint64_t incarnation) const {
  std::optional<proto::Decided> result;
  for (auto& part : marks) {
    const auto i = std::ranges::find_if(
      part, [&](auto& x) { return x.worker() == worker && x.incarnation() == incarnation; });
    if (i == part.end() && one_worker_each)
      continue;
    if (i == part.end())
      return {};
    if (!result || i->sequence() < result->sequence())
      result = *i;
  }
  return result.value_or(proto::Decided{});
}

std::uint64_t assembled_checkpoint::newest_lease() const noexcept {
  std::uint64_t result = 0;
  for (auto& part : marks)
    for (auto& x : part)
      result = std::max<std::uint64_t>(result, x.lease());
  return result;
}

checkpoint_assembly::checkpoint_assembly(options how)
  : how_(std::move(how)), newest_(how_.first), sent_(how_.parts.size()) {}

// -- what fits ----------------------------------------------------------------------------------

std::string checkpoint_assembly::problem(const proto::CheckpointPart& header,
                                         std::size_t bytes) const {
  const auto number = [](std::uint64_t x) { return std::to_string(x); };
  const auto version = "version " + number(header.version());
  if (header.part() >= how_.parts.size())
    return "part " + number(header.part()) + " of " + version + ", but there are "
      + number(how_.parts.size()) + " parts";
  if (header.slot() >= how_.slots)
    return "slot " + number(header.slot()) + " of " + version + ", but the optimizer has "
      + number(how_.slots - 1) + " slots besides the weights";
  if (header.version() <= how_.first || (!at_end_ && header.version() % how_.every != 0))
    return version + ": expected a multiple of " + number(how_.every)
      + (how_.first > 0 ? " after " + number(how_.first) : "");
  if (header.version() > how_.last)
    return version + ", but this job ends before version " + number(how_.last + 1);
  const auto where = place_of(header);
  if (bytes != 0 && bytes != where.size() * sizeof(float))
    return number(bytes) + " bytes in part " + number(header.part()) + " of " + version
      + ", which holds parameters " + number(where.begin) + " to " + number(where.end) + " and has "
      + number(where.size() * sizeof(float));
  return {};
}

range checkpoint_assembly::place_of(const proto::CheckpointPart& header) const {
  return in_one_piece(header.slot()) ? range{how_.parts.front().begin, how_.parts.back().end}
                                     : how_.parts[header.part()];
}

bool checkpoint_assembly::over(std::uint64_t version) const {
  return version <= newest_ || left_out_.contains(version);
}

bool checkpoint_assembly::wants(const proto::CheckpointPart& header) const {
  const auto i = versions_.find(header.version());
  if (i == versions_.end())
    return !over(header.version()) && header.version() <= ends_at_ && !is_skipped(header.version());
  return !i->second.slots[header.slot()][in_one_piece(header.slot()) ? 0 : header.part()];
}

// -- taking parts -------------------------------------------------------------------------------

checkpoint_assembly::outcome checkpoint_assembly::add(const proto::CheckpointPart& header,
                                                      const payload& data, time_point now) {
  note_order(header);
  auto i = versions_.find(header.version());
  if (i == versions_.end()) {
    if (header.version() <= newest_)
      return outcome::settled;
    if (is_skipped(header.version()))
      leave_out(header.version());
    if (header.version() > ends_at_ || left_out_.contains(header.version()) || !make_room(header))
      return outcome::refused;
  }
  auto& x = i == versions_.end() ? begin(header.version(), now) : i->second;
  auto& place = x.slots[header.slot()][in_one_piece(header.slot()) ? 0 : header.part()];
  if (place)
    return outcome::repeated;
  place = data;
  x.marks[header.part()].assign(header.mark().begin(), header.mark().end());
  if (header.has_pacing())
    x.pacing = header.pacing();
  if (--x.missing > 0)
    return outcome::taken;
  completed(header.version());
  return outcome::complete;
}

checkpoint_assembly::state& checkpoint_assembly::begin(std::uint64_t version, time_point now) {
  auto& x = versions_[version];
  for (std::size_t slot = 0; slot < how_.slots; ++slot) {
    x.slots.emplace_back(pieces(slot));
    x.missing += pieces(slot);
  }
  x.marks.resize(how_.parts.size());
  x.since = now;
  return x;
}

bool checkpoint_assembly::has_nothing_of(const state& x, std::uint32_t part) const {
  const auto in_parts = std::span{x.slots}.first(how_.slots - how_.whole);
  return std::ranges::none_of(in_parts, [part](auto& slot) { return slot[part].has_value(); });
}

/// Gives up the versions that the holder (a shard or rank) of this part has skipped. A holder sends
/// its versions in order: after a newer version, it sends no more parts of older versions.
void checkpoint_assembly::note_order(const proto::CheckpointPart& header) {
  if (in_one_piece(header.slot()))
    return;
  auto& sent = sent_[header.part()];
  sent = std::max(sent, header.version());
  std::erase_if(versions_, [&](auto& x) {
    const bool skipped = x.first < header.version() && has_nothing_of(x.second, header.part());
    if (skipped)
      leave_out(x.first);
    return skipped;
  });
}

/// True if a holder has skipped this version, of which no part is kept.
bool checkpoint_assembly::is_skipped(std::uint64_t version) const noexcept {
  return std::ranges::any_of(sent_, [version](auto newest) { return newest > version; });
}

bool checkpoint_assembly::make_room(const proto::CheckpointPart& header) {
  if (at_end_ || open() < checkpoint_schedule::most_open)
    return true;
  const auto waiting = std::ranges::find_if(versions_, [&](auto& x) {
    return x.second.missing == 0 && !x.second.copied && x.first < header.version();
  });
  if (waiting != versions_.end()) {
    versions_.erase(waiting);
    ++missed_;
    return true;
  }
  leave_out(header.version());
  return false;
}

void checkpoint_assembly::leave_out(std::uint64_t version) {
  left_out_.insert(version);
  if (left_out_.size() > most_remembered)
    left_out_.erase(left_out_.begin());
}

// All parts of `version` have arrived. Drops older versions that are incomplete.
void checkpoint_assembly::completed(std::uint64_t version) {
  std::erase_if(versions_, [&](auto& x) { return x.first < version && x.second.missing > 0; });
  std::erase_if(left_out_, [&](auto& x) { return x < version; });
  missed_ += (version - 1) / how_.every - newest_ / how_.every;
  newest_ = version;
  if (open() > 1 || copied() > 0)
    copy_if_small(versions_.at(version));
}

void checkpoint_assembly::copy_if_small(state& x) {
  const auto bytes =
    how_.slots * (how_.parts.back().end - how_.parts.front().begin) * sizeof(float);
  if (bytes > how_.small || copied() == most_copied)
    return;
  for (auto& slot : x.slots)
    for (auto& part : slot)
      part = copy_of(*part);
  x.copied = true;
}

std::size_t checkpoint_assembly::copied() const noexcept {
  return static_cast<std::size_t>(
    std::ranges::count_if(versions_, [](auto& x) { return x.second.copied; }));
}

std::size_t checkpoint_assembly::open() const noexcept {
  return versions_.size() - copied() + (out_ > 0 ? 1 : 0);
}

std::optional<assembled_checkpoint> checkpoint_assembly::next() {
  const auto i = std::ranges::find_if(versions_, [](auto& x) { return x.second.missing == 0; });
  if (out_ > 0 || i == versions_.end())
    return std::nullopt;
  assembled_checkpoint result;
  result.version = out_ = i->first;
  result.marks = std::move(i->second.marks);
  result.pacing = std::move(i->second.pacing);
  result.one_worker_each = how_.one_worker_each;
  for (auto& slot : i->second.slots) {
    auto& parts = result.slots.emplace_back();
    for (auto& part : slot)
      parts.push_back(std::move(*part));
  }
  versions_.erase(i);
  return result;
}

void checkpoint_assembly::done() {
  out_ = 0;
}

// -- giving up ----------------------------------------------------------------------------------

void checkpoint_assembly::drop_late(time_point now, std::chrono::nanoseconds limit,
                                    time_point moved) {
  std::erase_if(versions_, [&](auto& x) {
    const bool late = x.second.missing > 0
      && (now - std::max(x.second.since, moved) > limit || now - x.second.since > 10 * limit);
    if (late)
      leave_out(x.first);
    return late;
  });
}

void checkpoint_assembly::finish(std::optional<std::uint64_t> last, time_point now) {
  std::erase_if(versions_, [&](auto& x) {
    return x.second.missing > 0 && (last ? x.first > *last : x.first % how_.every != 0);
  });
  if (!last)
    return;
  ends_at_ = *last;
  if (!over(*last) && !versions_.contains(*last) && !is_skipped(*last))
    begin(*last, now);
}

} // namespace troupe
