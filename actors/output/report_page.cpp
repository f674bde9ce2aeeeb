#include "actors/output/report_page.hpp"

#include "actors/output/print_to.hpp"
#include "actors/output/report_style.hpp"
#include "actors/output/svg_chart.hpp"
#include "actors/output/tensorboard.hpp"
#include "actors/output/text.hpp"
#include "actors/seconds.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace troupe {

namespace {

/// Largest number of rows of a table, so that the page stays readable and small.
constexpr std::size_t most_tasks = 256;

/// Limits of the chart of the last steps.
constexpr std::size_t most_lanes = 32;
constexpr std::size_t shown_steps = 8;
constexpr std::size_t most_stretches = 2000;

const std::array<chart_part, 5> time_parts{chart_part{"computing", "series-1"},
                                           {"waiting for a lease", "series-2"},
                                           {"waiting for data", "series-3"},
                                           {"waiting for weights", "series-4"},
                                           {"waiting for updates", "series-5"}};

/// NaN means that the number is not known: a loss that is not finite ends the run.
std::string number_text(double x, int digits = 4) {
  return std::isfinite(x) ? fmt::format("{:.{}g}", x, digits)
    : std::isnan(x)       ? "unknown"
                          : "not finite";
}

std::string percent(double x) {
  return fmt::format("{:.2f} %", 100 * x);
}

void put_card(std::string& out, const std::string& title, const std::string& content,
              const char* style = "") {
  if (!content.empty())
    print_to(out, "<section class=\"card {}\"><h2>{}</h2>\n{}</section>\n", style,
             escape_html(title), content);
}

/// Appends a row of a table. The cells are HTML.
void put_row(std::string& out, const char* cell, const std::vector<std::string>& cells) {
  out += "<tr>";
  for (auto& x : cells)
    print_to(out, "<{}>{}</{}>", cell, x, cell);
  out += "</tr>\n";
}

std::string legend(std::span<const chart_part> parts) {
  std::string result = "<p class=\"legend\">";
  for (auto& x : parts)
    print_to(result, "<span><i class=\"{}\"></i>{}</span>", x.style, escape_html(x.name));
  return result + "</p>\n";
}

// -- parts of the page --------------------------------------------------------------------------

std::string title(const report_data& x) {
  return escape_html(x.name.empty() ? "A run of troupe" : x.name);
}

std::string head(const report_data& x) {
  std::string result = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\" />\n"
                       "<meta name=\"viewport\" content=\"width=device-width\" />\n"
                       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                       "style-src 'unsafe-inline'\" />\n";
  print_to(result, "<title>{}</title>\n<style>{}</style></head>\n<body><main>\n", title(x),
           report_style);
  return result;
}

std::string began(const run_origin& x) {
  return fmt::format("began {:%Y-%m-%d %H:%M} UTC on {}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(x.started)),
                     escape_html(x.host));
}

std::string headline(const report_data& x) {
  const auto& s = x.summary;
  const char* state = s.failure.empty() ? "done" : s.interrupted ? "stopped" : "failed";
  std::string result;
  print_to(result, "<header><h1>{}</h1><p><span class=\"state {}\">{}</span> ", title(x), state,
           state);
  print_to(result, "{}, {}", escape_html(s.protocol),
           counted(static_cast<double>(s.workers), "worker"));
  if (!x.history.epochs().empty())
    print_to(result, ", {} of {}", x.history.epochs().back().epoch,
             counted(x.history.epochs().back().epochs, "epoch"));
  print_to(result, " · {}</p></header>\n", began(x.origin));
  if (s.views > 1)
    print_to(result,
             "<p>Tasks joined or were lost {}. This page describes the time since then.</p>\n",
             s.views == 2 ? "once" : fmt::format("{} times", s.views - 1));
  if (!s.ended_early.empty())
    print_to(result, "<p>{}</p>\n", escape_html(s.ended_early));
  if (!s.failure.empty())
    print_to(result, "<p class=\"failure\">{}</p>\n", escape_html(s.failure));
  return result;
}

std::string tiles(const report_data& x) {
  const auto& s = x.summary;
  std::string result;
  const auto tile = [&](const char* name, const std::string& value, const char* style = "") {
    print_to(result, "<div class=\"tile {}\"><b>{}</b><span>{}</span></div>\n", style,
             escape_html(value), name);
  };
  if (!x.history.epochs().empty()) {
    if (s.test_accuracy)
      tile("test accuracy", percent(*s.test_accuracy), "main");
    tile("test loss", number_text(s.test_loss), s.test_accuracy ? "" : "main");
    for (const auto& [name, value] : s.measures.numbers())
      tile(("test " + name).c_str(), number_text(value));
    if (s.validation_accuracy)
      tile("validation accuracy", percent(*s.validation_accuracy));
    if (s.validation_loss)
      tile("validation loss", number_text(*s.validation_loss));
    tile("training loss", number_text(x.history.epochs().back().train_loss));
  }
  if (s.samples > 0) {
    tile("samples/s", rate_text(s.samples_per_second));
    tile("samples trained", grouped(static_cast<double>(s.samples)));
    tile("training time", duration_text(s.seconds));
    tile("mean staleness, in updates", number_text(s.staleness_mean, 3));
    if (const auto share = hidden_share(s.tasks))
      tile("communication hidden by computing", fmt::format("{:.0f} %", 100 * *share));
    if (s.updates_per_second > 0)
      tile("updates/s", rate_text(s.updates_per_second));
    if (s.pacing)
      tile("gradients limited", grouped(static_cast<double>(s.pacing->limited)));
    if (s.pacing)
      tile("learning rate damped to", number_text(s.pacing->rate_damping, 3));
  }
  return result.empty() ? "" : "<div class=\"tiles\">\n" + result + "</div>\n";
}

const char* evaluated_name_of(const run_history& history) {
  const auto all = history.evaluations();
  return evaluated_name(!all.empty() && all.front().validation);
}

std::string capitalized(std::string text) {
  text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string loss_card(const run_history& history) {
  chart_line train{"training loss", "series-1", {}, false};
  const std::string evaluated = evaluated_name_of(history);
  chart_line test{evaluated + " loss", "series-2", {}, true};
  for (auto& p : history.progress())
    train.points.push_back({p.epochs, p.train_loss});
  // Short epochs may end between two reports of progress, so the end of each epoch is a point too.
  for (auto& e : history.epochs()) {
    train.points.push_back({static_cast<double>(e.epoch), e.train_loss});
  }
  for (auto& e : history.evaluations())
    test.points.push_back({e.when(), e.test_loss});
  std::ranges::stable_sort(train.points, {}, &chart_line::point::x);
  const std::array lines{train, test};
  const auto chart =
    line_chart({"Training and " + evaluated + " loss over epochs", "epochs"}, lines);
  if (chart.empty())
    return "";
  const std::array parts{
    chart_part{"training, mean of the epoch so far", "series-1"},
    chart_part{history.steps().empty() ? evaluated + ", after each epoch" : evaluated, "series-2"}};
  return legend(parts) + chart;
}

std::string accuracy_card(const run_history& history) {
  const std::string evaluated = evaluated_name_of(history);
  chart_line line{evaluated + " accuracy in %", "series-2", {}, true};
  for (auto& e : history.evaluations())
    if (e.test_accuracy)
      line.points.push_back({e.when(), 100 * *e.test_accuracy});
  return line_chart({capitalized(evaluated) + " accuracy over epochs, in percent", "epochs", false},
                    std::span{&line, 1});
}

std::string speed_card(const run_history& history) {
  chart_line line{"samples/s", "series-1", {}, false};
  for (auto& p : history.progress())
    line.points.push_back({p.seconds, p.samples_per_second});
  if (line.points.size() < 2) {
    line.points.clear();
    line.marks = true;
    for (auto& e : history.epochs())
      line.points.push_back({e.seconds, e.samples_per_second});
  }
  return line_chart({"Samples per second over time", "seconds"}, std::span{&line, 1});
}

std::string staleness_card(const staleness_counts& counts) {
  std::size_t used = counts.size();
  while (used > 0 && counts[used - 1] == 0)
    --used;
  if (used == 0)
    return "";
  // If there are many bars, only short labels fit.
  const bool is_crowded = used > 8;
  std::vector<chart_bar> bars;
  for (std::size_t i = 0; i < std::max<std::size_t>(used, 5); ++i) {
    const auto low = staleness_bounds[i];
    auto label = fmt::format("{}", low);
    if (i + 1 == staleness_bounds.size())
      label += "+";
    else if (!is_crowded && staleness_bounds[i + 1] > low + 1)
      print_to(label, "-{}", staleness_bounds[i + 1] - 1);
    bars.push_back({label, static_cast<double>(counts[i])});
  }
  return bar_chart({"Gradients by staleness",
                    is_crowded ? "updates since the weights were read (lower bound)"
                               : "updates since the weights were read"},
                   bars);
}

std::string time_card(const std::vector<task_status>& tasks) {
  std::vector<chart_stack> stacks;
  for (auto& x : tasks) {
    const auto all = x.computing + waiting_seconds(x);
    if (x.task.job != job_kind::worker || !(all > 0) || stacks.size() == most_tasks)
      continue;
    stacks.push_back({to_string(x.task),
                      {x.computing, x.waiting_for_lease, x.waiting_for_data, x.waiting_for_weights,
                       x.waiting_for_update},
                      fmt::format("{:.0f} % of {}", 100 * x.computing / all, duration_text(all))});
  }
  if (stacks.empty())
    return "";
  return legend(time_parts) + stacked_bars("How each worker spent its time", time_parts, stacks);
}

const std::array<chart_part, 6> lane_parts{
  chart_part{"computing or updating", "series-1"},
  chart_part{"waiting for a lease", "series-2"},
  chart_part{"waiting for data", "series-3"},
  chart_part{"waiting for weights", "series-4"},
  chart_part{"waiting for updates, norms or readers", "series-5"},
  chart_part{"waiting for gradients", "idle"}};

const std::string& lane_style(proto::TaskStatus::Doing x) {
  switch (x) {
  case proto::TaskStatus::COMPUTING:
  case proto::TaskStatus::UPDATING:
    return lane_parts[0].style;
  case proto::TaskStatus::WAITING_FOR_LEASE:
    return lane_parts[1].style;
  case proto::TaskStatus::WAITING_FOR_DATA:
    return lane_parts[2].style;
  case proto::TaskStatus::WAITING_FOR_WEIGHTS:
    return lane_parts[3].style;
  case proto::TaskStatus::WAITING_FOR_GRADIENTS:
    return lane_parts[5].style;
  default:
    return lane_parts[4].style;
  }
}

std::string timeline_card(const run_timeline& timeline) {
  const auto tasks = std::span{timeline.tasks}.first(std::min(timeline.tasks.size(), most_lanes));
  const auto window = newest_steps(tasks, shown_steps, most_stretches);
  const auto at = [&](activity::time_point x) { return 1e3 * to_seconds(x - window.begin); };
  std::vector<chart_lane> shown;
  for (const auto& task : tasks) {
    chart_lane lane{to_string(task.task), {}};
    for (const auto& x : task.done) {
      if (x.end <= window.begin || x.begin >= window.end)
        continue;
      auto title = fmt::format("{}, {:.3g} ms, step {}", activity_name(x.doing),
                               at(x.end) - at(x.begin), x.step);
      if (x.arrived)
        title += "; last message from " + to_string(*x.arrived);
      lane.stretches.push_back({at(x.begin), at(x.end), lane_style(x.doing), std::move(title)});
    }
    if (!lane.stretches.empty())
      shown.push_back(std::move(lane));
  }
  if (shown.empty())
    return "";
  return legend(lane_parts) + lanes("The last steps of each task", shown, at(window.end))
    + "<p class=\"note\">In milliseconds. timeline.json.gz has more: open it with "
      "ui.perfetto.dev or chrome://tracing.</p>\n";
}

std::string task_card(const std::vector<task_status>& tasks) {
  if (tasks.empty())
    return "";
  std::string result = "<div class=\"wide\"><table class=\"tasks\">\n";
  put_row(result, "th",
          {"task", "gradients or updates", "per second", "samples", "samples/s", "mean staleness",
           "MB/s sent", "MB/s received", "last"});
  for (std::size_t i = 0; i < std::min(tasks.size(), most_tasks); ++i) {
    auto& x = tasks[i];
    const bool worker = x.task.job == job_kind::worker;
    put_row(result, "td",
            {to_string(x.task), grouped(static_cast<double>(x.steps)),
             rate_text(x.steps_per_second), worker ? grouped(static_cast<double>(x.samples)) : "",
             worker ? rate_text(x.samples_per_second) : "",
             worker ? number_text(x.staleness_mean, 3) : "",
             fmt::format("{:.1f}", x.bytes_sent_per_second / 1e6),
             fmt::format("{:.1f}", x.bytes_received_per_second / 1e6), escape_html(x.activity)});
  }
  result += "</table></div>\n";
  if (tasks.size() > most_tasks)
    print_to(result, "<p class=\"note\">... and {} more</p>\n", tasks.size() - most_tasks);
  return result;
}

std::string ledger_card(const run_summary& s) {
  if (s.samples == 0)
    return "";
  if (!s.counted)
    return "<p class=\"note\">Not counted: the run ended early.</p>\n";
  std::string result = "<table>\n";
  const auto row = [&](const char* name, std::uint64_t n, const char* meaning) {
    print_to(result, "<tr><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n", name,
             grouped(static_cast<double>(n)), meaning);
  };
  row("applied", s.applied, "used in an update of the weights");
  row("rejected", s.rejected_stale,
      s.dropped_samples > 0 ? "too late, and left out"
                            : "too old or too late; their samples were trained again");
  if (s.dropped_samples > 0)
    row("dropped", s.dropped_samples,
        "samples of the rejected gradients: not trained in their epoch");
  row("moved to other workers", s.requeued, "by workers that left or were lost");
  row("lost", s.lost, "in transit when their worker was lost");
  row("quarantined", s.quarantined, "not finite, and left out");
  row("split", s.split, "decided differently by different shards; must be 0");
  row("duplicates", s.duplicates, "sent again and recognized");
  print_to(result, "</table>\n<p class=\"note\">Each gradient is counted once per {}.{}</p>\n",
           escape_html(s.decided_by), s.failure.empty() ? " Every gradient is accounted for." : "");
  return result;
}

/// The confusion matrix as HTML: a row for each class of the test records, a column for each
/// predicted class.
std::string confusion_card(const run_summary& summary) {
  const auto& x = summary.measures;
  if (x.confusion.empty())
    return "";
  std::string result = "<div class=\"wide\"><table>\n<tr><th>class</th>";
  for (std::size_t c = 0; c < x.classes(); ++c)
    print_to(result, "<th>{}</th>", escape_html(class_name(summary, c)));
  result += "</tr>\n";
  for (std::size_t i = 0; i < x.confusion.size(); ++i) {
    if (i % x.classes() == 0)
      print_to(result, "<tr><td>{}</td>", escape_html(class_name(summary, i / x.classes())));
    print_to(result, "<td>{}</td>", x.confusion[i]);
    if ((i + 1) % x.classes() == 0)
      result += "</tr>\n";
  }
  return result
    + "</table></div>\n<p class=\"note\">Rows: the classes of the test records. "
      "Columns: the predictions.</p>\n";
}

std::string notices_card(const run_history& history) {
  if (history.notices().empty())
    return "";
  std::string result = "<ul class=\"notices\">\n";
  for (auto& x : history.notices())
    print_to(result, "<li><time>{}</time>{}</li>\n", clock_text(x.seconds), escape_html(x.text));
  result += "</ul>\n";
  if (history.notices_left_out() > 0)
    print_to(result, "<p class=\"note\">... and {} more</p>\n", history.notices_left_out());
  return result;
}

std::string epoch_table(const std::vector<epoch_report>& epochs) {
  if (epochs.empty())
    return "";
  const std::string evaluated = evaluated_name(epochs.front().validation);
  std::string result = "<details><summary>The numbers of each epoch</summary><div class=\"wide\">"
                       "<table>\n";
  put_row(result, "th",
          {"epoch", "seconds", "training loss", evaluated + " loss", evaluated + " accuracy",
           "samples/s"});
  for (auto& e : epochs)
    put_row(result, "td",
            {fmt::format("{}", e.epoch), fmt::format("{:.2f}", e.seconds),
             number_text(e.train_loss), number_text(e.test_loss),
             e.test_accuracy ? percent(*e.test_accuracy) : "", rate_text(e.samples_per_second)});
  return result + "</table></div></details>\n";
}

std::string footer(const report_data& x) {
  std::string result = "<footer><dl>";
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty())
      print_to(result, "<dt>{}</dt><dd>{}</dd>", name, escape_html(value));
  };
  line("troupe", x.version);
  line("job, sha256", x.job_hash);
  line("weights, sha256", x.summary.weights_sha256);
  line("weights.safetensors holds", x.summary.weights_file);
  if (x.summary.best)
    line("best evaluation", best_text(*x.summary.best, x.summary.best_kept));
  if (!x.summary.coefficients.empty())
    line("coefficients, the intercept first", first_numbers(x.summary.coefficients));
  if (!x.summary.ridge.empty())
    line("weight decay", x.summary.ridge);
  return result + "</dl></footer>\n";
}

} // namespace

std::string render_report(const report_data& x) {
  auto result = head(x) + headline(x) + tiles(x);
  result += "<div class=\"cards\">\n";
  put_card(result, "Loss", loss_card(x.history));
  put_card(result, capitalized(evaluated_name_of(x.history)) + " accuracy, %",
           accuracy_card(x.history));
  put_card(result, "Samples per second", speed_card(x.history));
  put_card(result, "Gradients by staleness", staleness_card(x.summary.staleness));
  put_card(result, "How each worker spent its time", time_card(x.summary.tasks), "full");
  if (x.timeline)
    put_card(result, "The last steps of each task", timeline_card(*x.timeline), "full");
  put_card(result, "Tasks", task_card(x.summary.tasks), "full");
  put_card(result, "Confusion matrix", confusion_card(x.summary), "full");
  put_card(result, "Notices", notices_card(x.history), "full");
  put_card(result, "Ledger of gradients", ledger_card(x.summary), "full");
  put_card(result, "Epochs", epoch_table(x.history.epochs()), "full");
  put_card(result, "The job", "<pre>" + escape_html(x.job) + "</pre>\n", "full");
  return result + "</div>\n" + footer(x) + "</main></body></html>\n";
}

std::string render_unfinished(const report_data& x) {
  return head(x)
    + fmt::format("<header><h1>{}</h1><p>This run has not ended · {}</p></header>\n"
                  "<p>metrics.jsonl has its records so far. If no process runs it any more, it was "
                  "killed, or its report could not be written.</p>\n</main></body></html>\n",
                  title(x), began(x.origin));
}

} // namespace troupe
