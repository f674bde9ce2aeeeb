#include "actors/output/run_timeline.hpp"

#include "actors/output/print_to.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace troupe {

namespace {

using time_point = activity::time_point;

/// The begin of the first activity of all tasks. Without activities, the time of the first mark.
time_point first_begin(const run_timeline& x) {
  auto result = time_point::max();
  for (const auto& task : x.tasks)
    for (const auto* list : {&task.done, &task.exchanged})
      if (!list->empty())
        result = std::min(result, list->front().begin);
  return result == time_point::max() && !x.marks.empty() ? x.marks.front().when : result;
}

/// Microseconds, the unit of the format, with three decimals.
std::string microseconds(std::chrono::nanoseconds x) {
  return fmt::format("{}.{:03}", x.count() / 1000, x.count() % 1000);
}

/// Valid JSON, even if the text is not valid UTF-8.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void put_name(std::string& out, const char* what, std::size_t process, std::size_t thread,
              const std::string& name) {
  print_to(out, R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}},)", what,
           process, thread, quoted(name));
  out += '\n';
}

void put_activities(std::string& out, std::size_t process, std::size_t thread,
                    const std::vector<activity>& list, time_point zero) {
  for (const auto& x : list) {
    print_to(out, R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"step":{})",
             activity_name(x.doing), process, thread, microseconds(x.begin - zero),
             microseconds(x.end - x.begin), x.step);
    if (x.arrived)
      print_to(out, R"(,"last message from":"{}")", to_string(*x.arrived));
    out += "}},\n";
  }
}

bool computes(const activity& x) {
  return x.doing == proto::TaskStatus::COMPUTING;
}

/// When the task has computed for the last time. Nothing if it never computed.
std::optional<time_point> last_computed(const task_timeline& x) {
  const auto last = std::find_if(x.done.rbegin(), x.done.rend(), computes);
  return last == x.done.rend() ? std::nullopt : std::optional{last->end};
}

/// The begin of the last `steps` computations that end before `end`; `end` if there are none.
time_point begin_of_steps(const task_timeline& x, std::size_t steps, time_point end) {
  auto result = end;
  for (auto i = x.done.rbegin(); i != x.done.rend() && steps > 0; ++i)
    if (computes(*i) && i->end <= end) {
      result = i->begin;
      --steps;
    }
  return result;
}

std::size_t activities_in(std::span<const task_timeline> x, const timeline_window& window) {
  std::size_t result = 0;
  for (const auto& task : x)
    for (const auto& each : task.done)
      result += each.end > window.begin && each.begin < window.end ? 1 : 0;
  return result;
}

} // namespace

std::string trace_events(const run_timeline& x) {
  const auto zero = first_begin(x);
  std::string result = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  // Process 1 is the run, and process i + 2 is task i. Threads 2 p and 2 p + 1 belong to process p.
  // Perfetto gives 0 a meaning of its own, and expects different numbers for all threads.
  put_name(result, "process_name", 1, 2, "run");
  put_name(result, "thread_name", 1, 2, "notices and evaluations");
  for (const auto& mark : x.marks)
    if (mark.when >= zero)
      print_to(result, "{{\"ph\":\"i\",\"s\":\"g\",\"name\":{},\"pid\":1,\"tid\":2,\"ts\":{}}},\n",
               quoted(mark.text), microseconds(mark.when - zero));
  for (std::size_t i = 0; i < x.tasks.size(); ++i) {
    const auto& task = x.tasks[i];
    const auto process = i + 2;
    const auto activities = 2 * process;
    const auto exchanges = activities + 1;
    put_name(result, "process_name", process, activities, to_string(task.task));
    put_name(result, "thread_name", process, activities, "activity");
    put_activities(result, process, activities, task.done, zero);
    if (task.exchanged.empty())
      continue;
    put_name(result, "thread_name", process, exchanges, "gradients and weights in transit");
    put_activities(result, process, exchanges, task.exchanged, zero);
  }
  result.resize(result.size() - 2); // the last comma and end of line
  return result + "\n]}\n";
}

timeline_window newest_steps(std::span<const task_timeline> x, std::size_t steps,
                             std::size_t most) {
  std::vector<std::pair<time_point, const task_timeline*>> workers;
  for (const auto& task : x)
    if (const auto last = last_computed(task))
      workers.emplace_back(*last, &task);
  if (workers.empty())
    return {};
  const auto newest = std::ranges::max(workers).first;
  std::erase_if(workers, [&](const auto& w) { return w.first < newest - std::chrono::seconds{2}; });
  const auto end = std::ranges::min(workers).first;
  timeline_window result{end, end};
  for (const auto& [last, task] : workers)
    result.begin = std::min(result.begin, begin_of_steps(*task, steps, end));
  while (result.begin < result.end && activities_in(x, result) > most)
    result.begin += (result.end - result.begin + std::chrono::nanoseconds{1}) / 2;
  return result;
}

} // namespace troupe
