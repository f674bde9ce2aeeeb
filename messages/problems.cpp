#include "messages/problems.hpp"

#include "messages/loss_scale_state.hpp"
#include "messages/names.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <utility>

namespace troupe {

namespace {

/// The longest accepted time, longer than any run. Times up to this limit fit in the types of all
/// clocks.
constexpr double most_seconds = 1e9;
constexpr std::uint64_t most_nanoseconds = 1'000'000'000'000'000'000;
/// Largest number of activities in a status.
constexpr int most_activities = 4096;
/// The largest accepted position in an epoch. The sum of a few positions up to this limit fits in
/// 64 bits.
constexpr std::uint64_t most_positions = std::uint64_t{1} << 62;

/// The largest accepted number, larger than any sum of float32 values in a run. Sums of numbers up
/// to this limit stay finite.
constexpr double most_number = 1e100;

bool finite(double x) {
  return std::abs(x) <= most_number;
}

bool not_negative(double x) {
  return finite(x) && x >= 0;
}

bool share(double x) {
  return x >= 0 && x <= 1;
}

std::string numbered(const char* what, double x) {
  return std::string{what} + " of " + std::to_string(x);
}

std::string seconds_problem(double x) {
  return not_negative(x) && x <= most_seconds ? "" : numbered("a time", x) + " s";
}

/// Describes the first count that is too large for any run. Empty if all counts are possible.
std::string counts_problem(std::initializer_list<std::pair<const char*, std::uint64_t>> counts) {
  for (auto& [what, x] : counts)
    if (x > most_counted)
      return std::string{what} + ' ' + std::to_string(x) + ", more than any run counts";
  return "";
}

std::string activities_problem(const proto::Activities& x) {
  const auto n = x.lengths_size();
  if (n > most_activities || x.pauses_size() != n || x.steps_size() != n || x.arrived_size() != n
      || (x.doing_size() > 0 && x.doing_size() != n) || x.tasks_size() > n)
    return "lists of activities of different or too large sizes";
  std::uint64_t end = 0;
  std::uint64_t step = 0;
  for (int i = 0; i < n; ++i) {
    for (const auto time : {x.pauses(i), x.lengths(i)}) {
      if (time > most_nanoseconds - end)
        return "an activity that ends later than any run";
      end += time;
    }
    if (x.steps(i) > most_counted - step)
      return "an activity of more steps than any run has";
    step += x.steps(i);
    if (x.arrived(i) > static_cast<std::uint32_t>(x.tasks_size())
        || (x.doing_size() > 0 && !proto::TaskStatus::Doing_IsValid(x.doing(i))))
      return "an activity that is not known";
  }
  return "";
}

template <class Message>
std::string scale_problem(const Message& x) {
  return !x.has_loss_scale() || from_proto(x.loss_scale()).valid()
    ? ""
    : "a loss scale of " + std::to_string(x.loss_scale().value());
}

std::string decided_problem(const google::protobuf::RepeatedPtrField<proto::Decided>& all) {
  for (auto& x : all)
    if (auto problem = counts_problem({{"applied gradients", x.applied()},
                                       {"rejected gradients", x.rejected_stale()},
                                       {"lost gradients", x.lost()},
                                       {"quarantined gradients", x.quarantined()},
                                       {"gradient", x.sequence()},
                                       {"lease", x.lease()},
                                       {"batch", x.batch()},
                                       {"updates", x.updates()}});
        !problem.empty())
      return problem;
    else if (problem = scale_problem(x); !problem.empty())
      return problem;
  return "";
}

std::string loss_problem(double sum, std::uint64_t counted, std::uint64_t samples) {
  if (!finite(sum))
    return numbered("a sum of losses", sum);
  if (counted == 0 && sum != 0)
    return numbered("a loss without samples, with a sum", sum);
  if (counted > samples)
    return "losses of " + std::to_string(counted) + " of " + std::to_string(samples) + " samples";
  return "";
}

} // namespace

std::string problem_of(const proto::GradientId& x) {
  return x.sequence() == 0 ? "a gradient with number 0; expected 1 or more" : "";
}

std::string problem_of(const proto::Commit& x, std::uint64_t most_samples) {
  if (auto problem = problem_of(x.id()); !problem.empty())
    return problem;
  if (x.samples() > most_samples)
    return std::to_string(x.samples()) + " samples in a batch of at most "
      + std::to_string(most_samples);
  if (auto problem = scale_problem(x); !problem.empty())
    return problem;
  if (x.quarantine())
    return "";
  if (!not_negative(x.gradient_norm()))
    return numbered("a norm", x.gradient_norm());
  if (!finite(x.loss()))
    return numbered("a loss", x.loss());
  if (!not_negative(x.scale()) || x.scale() > 1)
    return numbered("a scale", x.scale());
  return "";
}

std::string problem_of(const proto::Damping& x) {
  return not_negative(x.factor()) && x.factor() > 0 && x.factor() <= 1
    ? ""
    : numbered("a damping", x.factor());
}

std::string problem_of(const proto::PartialNorm& x) {
  return not_negative(x.squares()) ? "" : numbered("a sum of squares", x.squares());
}

std::string problem_of(const proto::Advanced& x) {
  return !x.has_gradient_norm() || not_negative(x.gradient_norm())
    ? ""
    : numbered("a norm", x.gradient_norm());
}

std::string problem_of(const proto::Lease& x) {
  if (x.begin() >= x.end() || x.end() > most_positions)
    return "positions " + std::to_string(x.begin()) + " to " + std::to_string(x.end());
  if (x.batch() == 0 || x.stride() == 0 || x.stride() > most_positions || x.offset() >= x.stride()
      || x.batch() > x.stride() - x.offset())
    return "batches of " + std::to_string(x.batch()) + " at " + std::to_string(x.offset())
      + " of every " + std::to_string(x.stride());
  return "";
}

std::string problem_of(const proto::Progress& x) {
  for (const auto seconds : {x.computing(), x.exchanging_while_computing(), x.waiting_for_lease(),
                             x.waiting_for_data(), x.waiting_for_weights(), x.waiting_for_update()})
    if (auto problem = seconds_problem(seconds); !problem.empty())
      return problem;
  if (x.has_gradient_norm() && !not_negative(x.gradient_norm()))
    return numbered("a norm", x.gradient_norm());
  for (const auto count : x.staleness())
    if (auto problem = counts_problem({{"stale gradients", count}}); !problem.empty())
      return problem;
  return counts_problem({{"gradients", x.produced()},
                         {"requeued gradients", x.requeued()},
                         {"applied gradients", x.applied()},
                         {"samples", x.samples()},
                         {"updates of staleness", x.staleness_sum()},
                         {"quarantined gradients", x.quarantined()},
                         {"limited gradients", x.limited()}});
}

std::string problem_of(const proto::LeaseDone& x) {
  auto problem = loss_problem(x.loss_sum(), x.loss_samples(), x.samples());
  return problem.empty() ? problem_of(x.progress()) : problem;
}

std::string problem_of(const proto::Heartbeat& x) {
  auto problem = loss_problem(x.loss_sum(), x.loss_samples(), x.samples());
  return problem.empty() ? problem_of(x.progress()) : problem;
}

std::string problem_of(const proto::CheckpointPart& x) {
  auto problem = counts_problem({{"version", x.version()}});
  return problem.empty() ? decided_problem(x.mark()) : problem;
}

std::string problem_of(const proto::Restore& x) {
  return counts_problem(
    {{"version", x.version()}, {"samples", x.samples()}, {"updates", x.updates()}});
}

std::string describe(const proto::Restore& x, std::size_t bytes) {
  const auto problem = problem_of(x);
  return std::to_string(bytes) + " bytes of slot " + std::to_string(x.slot())
    + " of a checkpoint, which does not fit" + (problem.empty() ? "" : ": ") + problem;
}

std::string problem_of(const proto::Report& x) {
  auto problem = counts_problem({{"repeated messages", x.duplicates()},
                                 {"samples", x.samples()},
                                 {"quarantined samples", x.quarantined_samples()},
                                 {"updates of staleness", x.staleness_sum()},
                                 {"version", x.version()},
                                 {"captured version", x.captured()},
                                 {"captured version", x.captured_to_evaluate()}});
  return problem.empty() ? decided_problem(x.decided()) : problem;
}

std::string problem_of(const proto::TaskStatus& x) {
  if (!proto::TaskStatus::Doing_IsValid(x.doing()))
    return "an activity " + std::to_string(x.doing());
  auto problem = seconds_problem(x.seconds());
  if (problem.empty())
    problem = seconds_problem(x.step_seconds());
  if (problem.empty())
    problem = seconds_problem(x.payload_seconds());
  if (problem.empty())
    problem = activities_problem(x.done());
  if (problem.empty())
    problem = activities_problem(x.exchanged());
  for (const auto time : {x.clock(), x.exchanging_since()})
    if (problem.empty() && time > most_nanoseconds)
      problem = "a clock of " + std::to_string(time) + " ns";
  if (!problem.empty() || !x.has_pacing())
    return problem;
  const auto& pacing = x.pacing();
  return not_negative(pacing.norm()) && not_negative(pacing.staleness())
      && not_negative(pacing.damping())
    ? ""
    : "a norm, staleness or damping that is not a number from 0";
}

std::string problem_of(const proto::OpenView& x, std::uint64_t incarnation) {
  task_name self;
  if (!from_proto(x.task(), self))
    return "there is no job '" + x.task().job() + "'";
  std::set<task_name> members;
  bool here = self.job == job_kind::evaluator;
  for (auto& y : x.member()) {
    task_name task;
    if (!from_proto(y.task(), task))
      return "a member of an unknown job '" + y.task().job() + "'";
    if (!members.insert(task).second)
      return to_string(task) + " is a member twice";
    here = here || (task == self && y.incarnation() == incarnation);
  }
  return here ? scale_problem(x) : to_string(self) + ", as started here, is not a member";
}

namespace {

std::string measures_problem(const proto::Measured& x, double loss) {
  for (const double y : {x.top_5(), x.auc(), x.f1()})
    if (!share(y))
      return "a measure outside 0 .. 1";
  // The perplexity is computed from the loss, which may be NaN.
  if (!(x.perplexity() >= 0) && !(std::isnan(x.perplexity()) && std::isnan(loss)))
    return numbered("a perplexity", x.perplexity());
  const auto size = static_cast<std::uint64_t>(x.confusion_size());
  std::uint64_t classes = 0;
  while (classes * classes < size)
    ++classes;
  if (classes * classes != size)
    return "a confusion matrix of " + std::to_string(size) + " numbers, which is not square";
  return {};
}

} // namespace

std::string problem_of(const proto::Evaluated& x, std::uint64_t coefficients) {
  if ((x.has_accuracy() && !share(x.accuracy()))
      || (x.has_test_accuracy() && !share(x.test_accuracy())))
    return "an accuracy outside 0 .. 1";
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (x.weights_sha256().size() != 64 || !std::ranges::all_of(x.weights_sha256(), digit))
    return "an invalid hash of the weights";
  if (auto problem = measures_problem(x.measures(), x.loss()); !problem.empty())
    return problem;
  if (auto problem = measures_problem(x.test_measures(), x.test_loss()); !problem.empty())
    return problem;
  const auto n = static_cast<std::uint64_t>(x.coefficients_size());
  return n == 0 || n == coefficients
    ? ""
    : std::to_string(n) + " coefficients instead of " + std::to_string(coefficients);
}

} // namespace troupe
