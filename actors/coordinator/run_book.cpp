#include "actors/coordinator/run_book.hpp"

#include "actors/leases/lease_cursor.hpp"
#include "actors/seconds.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// The longest time that a lease should take, in seconds. A worker holds two leases, and a run that
/// is stopped must wait for both within `stopping_limit`.
constexpr double lease_seconds = 4;

double seconds_between(run_book::time_point from, run_book::time_point to) {
  return to_seconds(to - from);
}

lease_book::options lease_options(const run_book::options& how, std::size_t workers) {
  lease_book::options result;
  result.records = how.records;
  result.batch = how.batch;
  result.workers = workers;
  result.in_step = how.in_step;
  result.remember = how.remember;
  return result;
}

} // namespace

void run_book::worker::hear(const proto::Progress& x) {
  account.produced = std::max(account.produced, x.produced());
  account.requeued = std::max(account.requeued, x.requeued());
}

run_book::run_book(const options& how,
                   const std::vector<std::pair<std::uint32_t, std::uint64_t>>& workers)
  : how_(how), leases_(lease_options(how, workers.size())) {
  for (auto& [index, incarnation] : workers) {
    worker x;
    x.rank = workers_.size();
    x.account.worker = index;
    x.account.incarnation = incarnation;
    workers_.push_back(std::move(x));
  }
}

// -- epochs -------------------------------------------------------------------------------------

void run_book::begin(std::size_t deciders, const std::optional<lease_cut>& from, time_point now) {
  began_ = now;
  lost_.assign(deciders, 0);
  if (!from) {
    expected_ = how_.records * how_.epochs;
    open_epoch(0, now);
    return;
  }
  expected_ = from->samples() + how_.records * (how_.epochs - 1 - from->epoch);
  epoch_ = from->epoch;
  epoch_began_ = now;
  trained_before_ = how_.records - from->samples();
  leases_.resume_epoch(*from);
}

void run_book::open_epoch(std::uint32_t epoch, time_point now) {
  epoch_ = epoch;
  epoch_began_ = now;
  epoch_samples_ = epoch_loss_samples_ = epoch_leases_ = 0;
  epoch_loss_ = 0;
  trained_before_ = 0;
  leases_.open_epoch(epoch);
}

epoch_totals run_book::totals(time_point now, bool live) const {
  auto samples = epoch_samples_;
  auto loss_samples = epoch_loss_samples_;
  auto loss = epoch_loss_;
  for (auto& x : workers_)
    if (live && x.present) {
      samples += x.live_samples;
      loss_samples += x.live_loss_samples;
      loss += x.live_loss;
    }
  epoch_totals result;
  result.epoch = epoch_;
  result.seconds = seconds_between(began_, now);
  result.samples = trained_before_ + samples;
  result.samples_per_second =
    static_cast<double>(samples) / std::max(seconds_between(epoch_began_, now), 1e-9);
  // If there are no samples, this is 0 / 0: NaN, which means unknown.
  result.train_loss = loss / static_cast<double>(loss_samples);
  result.epochs_trained = static_cast<double>(epoch_)
    + static_cast<double>(std::min(result.samples, how_.records))
      / static_cast<double>(how_.records);
  return result;
}

// -- workers ------------------------------------------------------------------------------------

run_book::worker* run_book::find(std::uint32_t index, std::uint64_t incarnation) {
  auto* x = find(index);
  return x && x->account.incarnation == incarnation ? x : nullptr;
}

run_book::worker* run_book::find(std::uint32_t index) {
  auto i = std::ranges::find_if(workers_, [&](auto& x) { return x.account.worker == index; });
  return i == workers_.end() || !i->present ? nullptr : &*i;
}

std::size_t run_book::present() const {
  return static_cast<std::size_t>(std::ranges::count_if(workers_, &worker::present));
}

std::uint64_t run_book::most_batches(const worker& who) const {
  auto slowest = who.batch_seconds;
  if (how_.in_step)
    for (const auto& x : workers_)
      if (x.present)
        slowest = std::max(slowest, x.batch_seconds); // An empty optional is less than any value.
  constexpr std::uint64_t most = lease_book::most_batches;
  if (!slowest)
    return 1;
  return *slowest * static_cast<double>(most) <= lease_seconds
    ? most
    : std::max<std::uint64_t>(static_cast<std::uint64_t>(lease_seconds / *slowest), 1);
}

std::optional<std::pair<std::size_t, proto::Lease>> run_book::next_lease(time_point now) {
  for (auto& x : workers_)
    if (x.present && x.given < x.asked)
      if (auto lease = leases_.next(x.rank, most_batches(x))) {
        if (leases_.held_by(x.rank).size() == 1)
          x.began = now;
        ++x.given;
        ++epoch_leases_;
        return std::pair{x.rank, std::move(*lease)};
      }
  return std::nullopt;
}

bool run_book::anybody_waits() const {
  return std::ranges::any_of(workers_, [](auto& x) { return x.present && x.given < x.asked; });
}

std::vector<std::uint32_t> run_book::gone() const {
  std::vector<std::uint32_t> result;
  for (auto& x : workers_)
    if (!x.present)
      result.push_back(x.account.worker);
  return result;
}

std::vector<std::uint32_t> run_book::idle() const {
  std::vector<std::uint32_t> result;
  for (auto& x : workers_)
    if (!x.present || (x.given < x.asked && leases_.held_by(x.rank).empty()))
      result.push_back(x.account.worker);
  return result;
}

std::vector<task_name> run_book::holders() const {
  std::vector<task_name> result;
  for (auto& x : workers_)
    if (x.present && !leases_.held_by(x.rank).empty())
      result.push_back(x.name());
  return result;
}

// -- results of leases ----------------------------------------------------------------------------

run_book::outcome run_book::settle(worker& who, const proto::LeaseDone& x, time_point now) {
  const auto held = leases_.held_by(who.rank);
  const auto lease = std::ranges::find(held, x.lease(), &proto::Lease::id);
  if (lease == held.end())
    return outcome::repeated;
  if (how_.in_step && x.batches() < batches_of(*lease))
    // The lease is not finished, because the worker leaves. The worker's Leave message then ends
    // the run and gives the reason.
    return outcome::repeated;
  if (!leases_.settle(x.lease(), x.batches(), x.samples(), x.drops_next()))
    return outcome::wrong;
  who.hear(x.progress());
  if (x.batches() > 0)
    who.batch_seconds = seconds_between(who.began, now) / static_cast<double>(x.batches());
  who.began = now;
  who.live_samples = 0;
  who.live_loss_samples = 0;
  who.live_loss = 0;
  count(x.samples(), x.loss_sum(), x.loss_samples());
  return outcome::counted;
}

void run_book::count(std::uint64_t samples, double loss, std::uint64_t loss_samples) {
  samples_ += samples;
  epoch_samples_ += samples;
  epoch_loss_ += loss;
  epoch_loss_samples_ += loss_samples;
}

void run_book::leave(worker& who) {
  who.present = false;
  for (auto& lease : leases_.held_by(who.rank))
    leases_.settle(lease.id(), 0, 0);
}

void run_book::vanish(worker& who) {
  who.present = false;
  who.account.vanished = true;
  ++settling_;
}

void run_book::settle_vanished(std::size_t rank, const std::vector<proto::Decided>& decided) {
  for (auto& lease : leases_.held_by(rank)) {
    const auto batches_at = [&](const proto::Decided& x) {
      return x.lease() > lease.id() ? batches_of(lease)
        : x.lease() == lease.id()   ? std::min(x.batch(), batches_of(lease) - 1) + 1
                                    : 0;
    };
    std::uint64_t batches = 0;
    for (auto& x : decided)
      batches = std::max(batches, batches_at(x));
    const auto samples = samples_of(lease, batches);
    for (std::size_t i = 0; i < decided.size(); ++i)
      lost_[i] += samples - samples_of(lease, batches_at(decided[i]));
    leases_.settle(lease.id(), batches, samples);
    count(samples, 0, 0);
  }
  --settling_;
}

ledger run_book::balance(const std::vector<proto::Report>& reports) const {
  std::vector<worker_account> accounts;
  for (auto& x : workers_)
    accounts.push_back(x.account);
  lease_account leased;
  // A run that was stopped expects only the samples that it has trained or dropped. The loss of a
  // worker after the last lease is settled does not change this number.
  leased.expected = leases_.stopped() ? leases_.committed() + leases_.dropped() : expected_;
  leased.leased = leases_.leased();
  leased.released = leases_.released();
  leased.committed = leases_.committed();
  leased.dropped = leases_.dropped();
  leased.lost = lost_;
  return troupe::balance(accounts, reports, leased);
}

} // namespace troupe
