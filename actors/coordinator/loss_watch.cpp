#include "actors/coordinator/loss_watch.hpp"

#include <cmath>
#include <cstdio>

namespace troupe {

namespace {

/// A loss above this fraction of a constant guess's loss is hardly better than the guess.
constexpr double near_guess = 0.98;

/// If the loss changes by less than this fraction of the first epoch's loss, the change is noise.
constexpr double noise = 0.05;

/// After fewer updates, a loss near that of a constant guess is normal.
constexpr double first_updates = 50;

std::string loss_text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", x);
  return buffer;
}

} // namespace

loss_watch::loss_watch(const proto::Job& job, const options& how) : job_(job), how_(how) {}

std::optional<std::string> loss_watch::epoch(std::uint32_t epoch, double loss) {
  const auto before = before_;
  before_ = loss;
  if (!std::isfinite(loss))
    return std::nullopt;
  const auto when = " in epoch " + std::to_string(epoch) + " of " + std::to_string(job_.epochs());
  const bool warm = static_cast<double>(epoch) > job_.learning_rate().warmup_epochs()
    && epoch * how_.updates_per_epoch >= first_updates;
  const bool guesses = how_.guess && loss > near_guess * *how_.guess;
  if (!first_)
    first_ = loss;
  const bool grew = before && loss > *before + noise * *first_;
  const bool falls = before && loss < *before - noise * *first_;
  const bool report_guess = guesses && warm && !guess_reported_;
  const bool report_growth = grew && !growth_reported_;
  guess_reported_ = guesses && (guess_reported_ || warm);
  growth_reported_ = grew;
  if (report_guess)
    return "the training loss" + when + " is " + guess_text(loss, falls);
  if (report_growth)
    return "the training loss grew from " + loss_text(*before) + " to " + loss_text(loss) + when
      + ". " + lower_rate() + scaling();
  return std::nullopt;
}

std::string loss_watch::guess_text(double loss, bool falls) const {
  const bool worse = loss >= *how_.guess;
  const auto rate = loss_text(static_cast<double>(job_.learning_rate().base()));
  return loss_text(loss) + (worse ? ": no better" : ": hardly better")
    + " than a constant guess, which has " + loss_text(*how_.guess) + ". "
    + (worse && !falls
         ? lower_rate()
         : "Train for more epochs, try a higher or a lower learning_rate.base (" + rate + ')')
    + scaling() + ", or check that each label belongs to its record";
}

std::string loss_watch::lower_rate() const {
  auto result = "Lower learning_rate.base ("
    + loss_text(static_cast<double>(job_.learning_rate().base())) + ")";
  if (job_.async_ps().compensation() == proto::AsyncPs::NONE && how_.workers > 1)
    result += ", leave out async_ps.compensation: NONE";
  if (job_.local_sgd().has_outer())
    result += ", lower local_sgd.outer.momentum ("
      + loss_text(static_cast<double>(job_.local_sgd().outer().momentum()))
      + ") or raise local_sgd.every (" + std::to_string(job_.local_sgd().every()) + ')';
  if (job_.learning_rate().warmup_epochs() == 0)
    result += ", set learning_rate.warmup_epochs";
  if (job_.optimizer().clip_norm() == 0)
    result += ", set optimizer.clip_norm";
  return result;
}

// Empty if the features are scaled already, or cannot be scaled. Pixels are always divided by 255.
std::string loss_watch::scaling() const {
  const std::string advice = ", scale the features";
  if (how_.features != feature_kind::numbers)
    return {};
  switch (job_.data().source_case()) {
  case proto::Data::kCsv:
    return job_.data().csv().standardize() ? "" : advice + " (data.csv.standardize)";
  case proto::Data::kNpy:
  case proto::Data::kNpz:
    return job_.data().has_normalize() ? "" : advice + " (data.normalize)";
  case proto::Data::SOURCE_NOT_SET: // the data of a program
    return advice;
  case proto::Data::kIdx:
  case proto::Data::kImageFolder:
  case proto::Data::kDigits:
  case proto::Data::kText:
  case proto::Data::kLibsvm:
    break;
  }
  return {};
}

} // namespace troupe
