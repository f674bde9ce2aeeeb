#include "actors/parameter_server/piecewise_updater.hpp"

#include <algorithm>

namespace troupe {

piecewise_updater::piecewise_updater(const job_context& context, const range_pieces& pieces,
                                     bool moment_apart, const updater_maker& on)
  : pieces_(pieces), staged_(pieces.count()), missing_(pieces.count()) {
  for (std::size_t i = 0; i < pieces.count(); ++i)
    updaters_.emplace_back(context, pieces[i], moment_apart, on);
}

void piecewise_updater::reserve_stage() {
  for (auto& x : updaters_)
    x.reserve_stage();
}

range piecewise_updater::at(std::size_t piece) const noexcept {
  const auto where = pieces_[piece];
  const auto begin = pieces_.where().begin;
  return {where.begin - begin, where.end - begin};
}

void piecewise_updater::apply(std::span<const float> weights, std::span<const float> gradient,
                              std::uint64_t samples, std::span<float> updated,
                              const range_updater::terms& how) {
  range_list only;
  for (std::size_t i = 0; i < updaters_.size(); ++i) {
    const auto [begin, end] = at(i);
    const auto n = end - begin;
    auto own = how;
    if (how.only != nullptr) {
      only = cut(*how.only, {begin, end});
      own.only = &only;
    }
    if (!how.moment.empty())
      own.moment = how.moment.subspan(begin, n);
    if (!how.addend.empty())
      own.addend = how.addend.subspan(begin, n);
    updaters_[i].apply(weights.subspan(begin, n), gradient.subspan(begin, n), samples,
                       updated.subspan(begin, n), own);
  }
}

void piecewise_updater::stage(std::size_t piece, std::span<const float> weights,
                              std::span<const float> gradient, std::uint64_t samples,
                              std::span<float> updated) {
  const auto [begin, end] = at(piece);
  const auto n = end - begin;
  updaters_[piece].stage(weights.subspan(begin, n), gradient, samples, updated.subspan(begin, n));
  missing_ -= staged_[piece] ? 0 : 1;
  staged_[piece] = true;
}

void piecewise_updater::forget_staged() noexcept {
  staged_.assign(staged_.size(), false);
  missing_ = staged_.size();
}

void piecewise_updater::publish() noexcept {
  for (auto& x : updaters_)
    x.publish();
  forget_staged();
}

void piecewise_updater::discard() noexcept {
  for (auto& x : updaters_)
    x.discard();
  forget_staged();
}

void piecewise_updater::skip(std::uint64_t samples) noexcept {
  for (auto& x : updaters_)
    x.skip(samples);
}

void piecewise_updater::count_update() noexcept {
  for (auto& x : updaters_)
    x.count_update();
}

payload piecewise_updater::state(std::size_t slot) const {
  auto result = payload::floats(pieces_.where().size());
  const auto all = result.as_mutable_floats();
  for (std::size_t i = 0; i < updaters_.size(); ++i)
    std::ranges::copy(updaters_[i].state(slot), all.subspan(at(i).begin).begin());
  return result;
}

void piecewise_updater::restore(std::uint64_t samples, std::uint64_t updates) noexcept {
  for (auto& x : updaters_)
    x.restore(samples, updates);
}

void piecewise_updater::restore(std::size_t slot, std::span<const float> values) {
  for (std::size_t i = 0; i < updaters_.size(); ++i)
    updaters_[i].restore(slot, values.subspan(at(i).begin, at(i).size()));
}

} // namespace troupe
