#include "apps/troupe/progress_view.hpp"

#include "actors/output/tensorboard.hpp"
#include "actors/output/text.hpp"
#include "kernels/formats/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t widest_bar = 30;
constexpr std::size_t narrowest_bar = 8;
/// Figures (values with a unit) whose rank is lower than this are left out if they leave too little
/// room for the bar.
constexpr int bar_rank = 4;

/// Largest number of parameter servers that the final table shows.
constexpr std::size_t most_shards = 8;

/// The duration of a task's activity is shown if it is at least this number of seconds.
constexpr double worth_telling = 1;

double total_samples(const run_progress& x) {
  return static_cast<double>(x.epochs) * static_cast<double>(x.epoch_samples);
}

std::ptrdiff_t workers_of(const run_progress& x) {
  return std::ranges::count(x.tasks, job_kind::worker, [](auto& y) { return y.task.job; });
}

double samples_so_far(const run_progress& x) {
  return (std::max(x.epoch, 1U) - 1.0) * static_cast<double>(x.epoch_samples)
    + static_cast<double>(x.samples);
}

std::string coloured(const std::string& text, const char* code, const terminal_style& style) {
  return style.colour && !text.empty() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

std::string repeated(std::string_view what, std::size_t n) {
  std::string result;
  for (std::size_t i = 0; i < n; ++i)
    result += what;
  return result;
}

std::string bar(double done, std::size_t cells, const terminal_style& style) {
  const auto filled =
    std::min(cells, static_cast<std::size_t>(done * static_cast<double>(cells) + 0.5));
  if (!style.unicode)
    return coloured(repeated("=", filled), "36", style) + repeated("-", cells - filled);
  return coloured(repeated("━", filled), "36", style)
    + coloured(repeated(style.colour ? "━" : "─", cells - filled), "90", style);
}

/// The columns of the line for a task.
struct task_row {
  std::string name;
  std::string rate;
  std::string share;
  std::string activity;
};

std::string activity_of(const task_status& x) {
  auto result = printable(x.activity);
  if (!result.empty() && x.activity_seconds >= worth_telling)
    result += fmt::format(" ({:.0f} s)", x.activity_seconds);
  return result;
}

std::string share_of(const task_status& x) {
  const auto all = x.computing + waiting_seconds(x);
  if (x.task.job != job_kind::worker || !(all > 0))
    return "";
  const auto computing = static_cast<int>(std::lround(100 * x.computing / all));
  return fmt::format("{:3} % computing {:3} % waiting", computing, 100 - computing);
}

std::string format_rate(double x, const char* unit) {
  return rate_text(x) + ' ' + unit;
}

std::string accuracy_text(const std::optional<double>& x) {
  return x ? fmt::format("accuracy {:.2f} %", 100 * *x) : "";
}

} // namespace

terminal_style style_of_environment(const char* (*variable)(const char* name)) {
  const auto value = [&](const char* name) {
    const char* x = variable(name);
    return std::string_view{x ? x : ""};
  };
  terminal_style result;
  result.colour = value("NO_COLOR").empty() && value("TERM") != "dumb";
  // The first of these variables that is set decides, as locale(7) describes.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const auto locale = value(name);
    if (locale.empty())
      continue;
    result.unicode = locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    break;
  }
  return result;
}

void progress_view::add(const run_progress& x) {
  if (!now_ || x.seconds < now_->seconds) { // Each view of an elastic run begins at 0.
    first_seconds_ = x.seconds;
    first_samples_ = samples_so_far(x);
  }
  now_ = x;
}

void progress_view::add(const epoch_report& x) {
  if (x.test_accuracy)
    accuracy_ = x.test_accuracy;
}

double progress_view::done() const {
  const auto all = static_cast<double>(now_->epoch_samples);
  return all > 0 ? std::clamp(static_cast<double>(now_->samples) / all, 0.0, 1.0) : 0;
}

std::optional<double> progress_view::seconds_left() const {
  const auto samples = samples_so_far(*now_);
  const auto seconds = now_->seconds - first_seconds_;
  // The estimate uses the average speed of the run so far, including pauses for evaluations. At the
  // beginning, it uses the current speed.
  const auto rate = seconds > 0 && samples > first_samples_ ? (samples - first_samples_) / seconds
                                                            : now_->samples_per_second;
  const auto left = total_samples(*now_) - samples;
  if (!(rate > 0) || left < 0 || now_->samples == 0)
    return std::nullopt;
  return left / rate;
}

std::vector<progress_view::figure> progress_view::figures() const {
  const auto& x = *now_;
  std::vector<figure> result;
  result.push_back({fmt::format("epoch {}/{}", x.epoch, x.epochs), 9});
  result.push_back({fmt::format("{:3.0f} %", std::floor(100 * done())), 8});
  if (x.samples > 0)
    result.push_back({fmt::format("loss {:.4f}", x.train_loss), 7});
  if (accuracy_)
    result.push_back({accuracy_text(accuracy_), 5});
  if (x.samples > 0)
    result.push_back({format_rate(x.samples_per_second, "samples/s"), 4});
  if (x.updates > 0 && (workers_of(x) > 1 || x.staleness_mean > 0))
    result.push_back({fmt::format("staleness {:.1f}", x.staleness_mean), 3});
  if (const auto left = seconds_left())
    result.push_back({clock_text(*left) + " left", 6});
  return result;
}

std::string progress_view::line() const {
  std::string result;
  for (auto& x : figures())
    result += (result.empty() ? "" : "  ") + x.text;
  return result;
}

std::string progress_view::head(const terminal_style& style) const {
  auto parts = figures();
  const auto width_of = [&] {
    std::size_t result = 0;
    for (auto& x : parts)
      result += cells_of(x.text) + 2;
    return result;
  };
  while (parts.size() > 1) {
    const auto least = std::ranges::min_element(parts, {}, &figure::rank);
    const auto wanted = least->rank < bar_rank ? width_of() + narrowest_bar : width_of() - 2;
    if (wanted <= style.width)
      break;
    parts.erase(least);
  }
  const auto used = width_of();
  std::string result;
  if (used + narrowest_bar <= style.width)
    result = bar(done(), std::min(widest_bar, style.width - used), style) + "  ";
  else if (used - 2 > style.width)
    return cut(parts[0].text, style.width, style.unicode);
  for (std::size_t i = 0; i < parts.size(); ++i)
    result += (i == 0 ? "" : "  ") + (i == 0 ? coloured(parts[i].text, "1", style) : parts[i].text);
  return result;
}

std::vector<std::string> progress_view::task_lines(const terminal_style& style,
                                                   std::size_t room) const {
  const auto& tasks = now_->tasks;
  const auto shown = tasks.size() <= room ? tasks.size() : room - std::min<std::size_t>(room, 1);
  std::vector<task_row> rows;
  std::size_t name = 0;
  std::size_t rate = 0;
  std::size_t share = 0;
  for (std::size_t i = 0; i < shown; ++i) {
    auto& x = tasks[i];
    const auto text = x.task.job == job_kind::worker
      ? format_rate(x.samples_per_second, "samples/s")
      : format_rate(x.steps_per_second, "updates/s");
    rows.push_back({to_string(x.task), text, share_of(x), activity_of(x)});
    name = std::max(name, rows.back().name.size());
    rate = std::max(rate, rows.back().rate.size());
    share = std::max(share, rows.back().share.size());
  }
  std::vector<std::string> result;
  for (auto& row : rows) {
    auto text = fmt::format("  {:<{}}  {:>{}}", row.name, name, row.rate, rate);
    if (share > 0)
      text += fmt::format("  {:<{}}", row.share, share);
    text = cut(text, style.width, style.unicode);
    const auto used = cells_of(text);
    // Shows the activity if at least 12 columns are free, which is enough for a word.
    const auto activity = used + 12 <= style.width && !row.activity.empty()
      ? "  " + cut(row.activity, style.width - used - 2, style.unicode)
      : "";
    while (activity.empty() && text.ends_with(' '))
      text.pop_back();
    result.push_back(text + coloured(activity, "90", style));
  }
  if (shown < tasks.size() && room > 0)
    result.push_back(coloured(
      cut(fmt::format("  ... and {} more", tasks.size() - shown), style.width, style.unicode), "90",
      style));
  return result;
}

std::vector<std::string> progress_view::lines(const terminal_style& style) const {
  if (!now_ || style.width == 0 || style.height < 2)
    return {};
  std::vector<std::string> result{head(style)};
  // The bar takes one line. One more line is for the cursor, and one for earlier output.
  for (auto& x : task_lines(style, style.height > 3 ? style.height - 3 : 0))
    result.push_back(std::move(x));
  return result;
}

namespace {

/// The summary says that workers waited for data if they did so for at least this share of their
/// time.
constexpr double worth_a_line = 0.2;

/// If the learning rate is multiplied by less than this, the weights hardly change any more.
constexpr double no_training = 1e-9;

/// A training loss as text. The loss is NaN for an epoch that ended before this run was resumed. It
/// is then unknown.
std::string loss_text(double x, const char* format) {
  return std::isnan(x) ? "unknown" : fmt::format(fmt::runtime(format), x);
}

/// The last line of the summary. Empty if the run trained all epochs.
std::string verdict_of(const run_summary& x) {
  if (!x.failure.empty())
    return fmt::format("{}: {}\n", x.interrupted ? "stopped" : "failed", x.failure);
  return x.ended_early.empty() ? "" : fmt::format("ended early: {}\n", x.ended_early);
}

/// The lines for parameter servers, which show how evenly the work is divided.
std::vector<std::string> shard_lines(const std::vector<task_status>& tasks) {
  std::vector<std::string> result;
  std::size_t more = 0;
  for (auto& x : tasks) {
    if (x.task.job != job_kind::ps || x.steps == 0)
      continue;
    if (result.size() == most_shards)
      ++more;
    else
      result.push_back(
        fmt::format("{}, {:.1f} MB/s sent, {:.1f} MB/s received",
                    to_string(x.task) + ' ' + format_rate(x.steps_per_second, "updates/s"),
                    x.bytes_sent_per_second / 1e6, x.bytes_received_per_second / 1e6));
  }
  if (more > 0)
    result.push_back(fmt::format("... and {} more", more));
  return result.size() > 1 ? result : std::vector<std::string>{};
}

/// How much the pacing of asynchronous updates lowered the learning rate.
std::string damping_text(double factor) {
  const auto text = fmt::format("the learning rate was multiplied by {:.2g} at the end", factor);
  return factor < no_training ? text + ": training has in effect stopped. Lower learning_rate.base"
                              : text + ", so that stale updates do not overshoot";
}

} // namespace

std::string format_epoch(const epoch_report& x) {
  const char* evaluated = evaluated_name(x.validation);
  auto result = fmt::format("epoch {}/{}", x.epoch, x.epochs);
  if (x.step > 0)
    result += fmt::format("  step {}", grouped(static_cast<double>(x.step)));
  result += fmt::format("  loss {}  {} loss {:.4f}", loss_text(x.train_loss, "{:.4f}"), evaluated,
                        x.test_loss);
  if (x.test_accuracy)
    result += "  " + accuracy_text(x.test_accuracy);
  for (const auto& [name, value] : x.measures.numbers())
    result += fmt::format("  {} {:.4f}", name, value);
  return result + "  " + grouped(x.samples_per_second) + " samples/s";
}

std::string format_summary(const run_summary& x) {
  std::string result;
  const auto line = [&](const char* what, const std::string& value) {
    fmt::format_to(std::back_inserter(result), "  {:<20}{}\n", what, value);
  };
  const auto verdict = verdict_of(x);
  if (x.samples == 0 && x.weights_sha256.empty())
    return verdict;
  line("protocol",
       fmt::format("{}, {} worker{}", x.protocol, x.workers, x.workers == 1 ? "" : "s"));
  if (x.views > 1)
    line("views", fmt::format("{}; the following describes the last one", x.views));
  line("seconds", fmt::format("{:.2f}", x.seconds));
  line("samples/s", grouped(x.samples_per_second));
  line("training loss", loss_text(x.train_loss, "{:.5g}"));
  line("test loss", loss_text(x.test_loss, "{:.5g}"));
  if (x.test_accuracy)
    line("test accuracy", fmt::format("{:.2f} %", 100 * *x.test_accuracy));
  for (const auto& [name, value] : x.measures.numbers())
    line(("test " + name).c_str(), fmt::format("{:.5g}", value));
  for (std::size_t i = 0; i < x.measures.classes(); ++i)
    line(i == 0 ? "confusion" : "",
         fmt::format("class {}: {}", class_name(x, i),
                     fmt::join(std::span{x.measures.confusion}.subspan(i * x.measures.classes(),
                                                                       x.measures.classes()),
                               " ")));
  if (x.validation_loss)
    line("validation loss", loss_text(*x.validation_loss, "{:.5g}"));
  if (x.validation_accuracy)
    line("validation accuracy", fmt::format("{:.2f} %", 100 * *x.validation_accuracy));
  const bool trained = x.protocol != "exact";
  if (x.counted && trained)
    line("gradients",
         fmt::format("{} applied, {} rejected as too old, {} moved to other workers, {} lost{}",
                     grouped(static_cast<double>(x.applied)),
                     grouped(static_cast<double>(x.rejected_stale)),
                     grouped(static_cast<double>(x.requeued)), grouped(static_cast<double>(x.lost)),
                     x.quarantined > 0 ? ", " + grouped(static_cast<double>(x.quarantined))
                         + " left out (not finite)"
                                       : ""));
  if (x.counted && x.dropped_samples > 0)
    line("",
         fmt::format("{} samples were not trained in their epoch: their gradients came too late",
                     grouped(static_cast<double>(x.dropped_samples))));
  if (x.counted && trained)
    line("", "(counted once per " + x.decided_by + ')');
  if (trained && (x.workers > 1 || x.staleness_mean > 0))
    line(
      "staleness",
      fmt::format("gradients came from weights {:.2f} updates old on average", x.staleness_mean));
  if (trained && x.pacing && x.pacing->limited > 0)
    line("",
         fmt::format("{} gradients, much larger than others, were scaled down",
                     grouped(static_cast<double>(x.pacing->limited))));
  if (trained && x.pacing && x.pacing->rate_damping < 1)
    line("", damping_text(x.pacing->rate_damping));
  if (const auto share = hidden_share(x.tasks); share && trained && (x.workers > 1 || *share > 0))
    line("communication", fmt::format("computing hid {:.0f} % of its time", 100 * *share));
  if (const auto share = data_share(x.tasks); trained && share >= worth_a_line)
    line("data",
         fmt::format("workers waited {:.0f} % of their time for data (data.read_threads may help)",
                     100 * share));
  const char* what = "shards";
  for (const auto& text : shard_lines(x.tasks))
    line(std::exchange(what, ""), text);
  if (!x.coefficients.empty())
    line("coefficients", first_numbers(x.coefficients));
  if (!x.ridge.empty())
    line(x.coefficients.empty() ? "penalty" : "", '(' + x.ridge + ')');
  if (!x.weights_sha256.empty())
    line("weights", "sha256 " + x.weights_sha256);
  if (!x.weights_file.empty())
    line("", "(weights.safetensors contains " + x.weights_file + ')');
  if (x.best)
    line("best evaluation", best_text(*x.best, x.best_kept));
  if (!x.output.empty())
    line(x.unwritten.empty() ? "written to" : "partly written to", x.output);
  return result + verdict;
}

} // namespace troupe
