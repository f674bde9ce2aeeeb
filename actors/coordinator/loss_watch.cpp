#include "actors/coordinator/loss_watch.hpp"

#include <cmath>
#include <cstdio>

namespace troupe {

namespace {

/// `near_guess`: a loss above this fraction of a constant guess's loss is no better than the guess.
/// `noise`: if the loss grows by less than this fraction of the first epoch's loss, the growth is
/// noise.
constexpr double near_guess = 0.98;
constexpr double noise = 0.05;

std::string loss_text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", x);
  return buffer;
}

/// Empty if the features are scaled already, or cannot be scaled.
std::string scaling_advice(const proto::Data& data) {
  const std::string advice = ", scale the features";
  switch (data.source_case()) {
  case proto::Data::kCsv:
    return data.csv().standardize() ? "" : advice + " (data.csv.standardize)";
  case proto::Data::kIdx:
  case proto::Data::kNpy:
  case proto::Data::kNpz:
  case proto::Data::kImageFolder:
    return data.has_normalize() ? "" : advice + " (data.normalize)";
  case proto::Data::SOURCE_NOT_SET: // the data of a program
    return advice;
  case proto::Data::kDigits:
  case proto::Data::kText:
  case proto::Data::kLibsvm:
    break;
  }
  return {};
}

} // namespace

loss_watch::loss_watch(const proto::Job& job, std::size_t workers, std::optional<double> guess)
  : job_(job), workers_(workers), guess_(guess) {}

std::optional<std::string> loss_watch::epoch(std::uint32_t epoch, double loss) {
  const auto before = before_;
  before_ = loss;
  if (!std::isfinite(loss))
    return std::nullopt;
  const auto when = " in epoch " + std::to_string(epoch) + " of " + std::to_string(job_.epochs());
  const bool warm = static_cast<double>(epoch) > job_.learning_rate().warmup_epochs();
  const bool guesses = guess_ && loss > near_guess * *guess_;
  if (!first_)
    first_ = loss;
  const bool grew = before && loss > *before + noise * *first_;
  const bool report_guess = guesses && warm && !guess_reported_;
  const bool report_growth = grew && !growth_reported_;
  guess_reported_ = guesses && (guess_reported_ || warm);
  growth_reported_ = grew;
  if (report_guess)
    return "the training loss" + when + " is " + loss_text(loss)
      + ": no better than a constant guess, which has " + loss_text(*guess_) + ". " + advice()
      + ", or check that each label belongs to its record";
  if (report_growth)
    return "the training loss grew from " + loss_text(*before) + " to " + loss_text(loss) + when
      + ". " + advice();
  return std::nullopt;
}

std::string loss_watch::advice() const {
  auto result = "Lower learning_rate.base ("
    + loss_text(static_cast<double>(job_.learning_rate().base())) + ")";
  if (job_.async_ps().compensation() == proto::AsyncPs::NONE && workers_ > 1)
    result += ", leave out async_ps.compensation: NONE";
  if (job_.local_sgd().has_outer())
    result += ", lower local_sgd.outer.momentum ("
      + loss_text(static_cast<double>(job_.local_sgd().outer().momentum()))
      + ") or raise local_sgd.every (" + std::to_string(job_.local_sgd().every()) + ')';
  if (job_.learning_rate().warmup_epochs() == 0)
    result += ", set learning_rate.warmup_epochs";
  if (job_.optimizer().clip_norm() == 0)
    result += ", set optimizer.clip_norm";
  return result + scaling_advice(job_.data());
}

} // namespace troupe
