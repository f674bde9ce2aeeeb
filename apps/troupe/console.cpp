#include "apps/troupe/console.hpp"

#include "actors/output/text.hpp"
#include "apps/troupe/logging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe {

namespace {

bool can_draw() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal && std::string_view{terminal} != "dumb";
}

/// Number of columns that a line takes on a terminal, without the sequences that set colours.
std::size_t shown_cells(const std::string& line) {
  std::string text;
  bool escaped = false;
  for (const char c : line) {
    if (c == '\033')
      escaped = true;
    else if (!escaped)
      text += c;
    else if (c == 'm')
      escaped = false;
  }
  return cells_of(text);
}

void write(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return; // Nobody reads the output.
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

} // namespace

console::console(caf::actor_config& cfg, std::atomic<bool>* training)
  : super(cfg), training_(training), terminal_(can_draw()),
    style_(style_of_environment([](const char* x) -> const char* { return std::getenv(x); })),
    last_line_(clock().now() - std::chrono::hours{1}) {
  style_.colour = style_.colour && terminal_;
}

console::behavior_type console::make_behavior() {
  return {
    [this](const run_progress& x) { on_progress(x); },
    [this](const epoch_report& x) { on_epoch(x); },
    [this](const run_summary& x) { on_summary(x); },
    [this](const run_notice& x) { on_notice(x); },
    [this](close_console) {
      erase();
      quit();
    },
  };
}

void console::on_progress(const run_progress& x) {
  *training_ = true;
  view_.add(x);
  if (terminal_) {
    draw("");
    return;
  }
  const auto now = clock().now();
  if (now - last_line_ < std::chrono::seconds{1})
    return;
  last_line_ = now;
  write(STDOUT_FILENO, view_.line() + '\n');
}

void console::on_epoch(const epoch_report& x) {
  view_.add(x);
  print(format_epoch(x) + '\n');
}

void console::on_summary(const run_summary& x) {
  erase();
  write(STDOUT_FILENO, format_summary(x));
  view_ = {};
}

void console::on_notice(const run_notice& x) {
  const bool redraw = !drawn_.empty();
  // The log may go to the same terminal, so the bar is removed while the notice is written.
  erase();
  log_notice(x);
  if (redraw)
    draw("");
}

void console::measure() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return;
  columns_ = size.ws_col;
  // The last column of the terminal stays empty, because terminals behave differently after a
  // character in the last column.
  style_.width = columns_ - 1;
  style_.height = size.ws_row;
}

std::string console::back_to_top() const {
  if (drawn_.empty())
    return "";
  // A line may take several rows, because a terminal wraps lines when it becomes narrower.
  std::size_t rows = 0;
  for (auto cells : drawn_)
    rows += std::max<std::size_t>(1, (cells + columns_ - 1) / columns_);
  return fmt::format("\r\033[{}A", std::min(rows, std::max<std::size_t>(style_.height, 2) - 1));
}

void console::erase() {
  measure();
  if (!drawn_.empty())
    write(STDOUT_FILENO, back_to_top() + "\033[J");
  drawn_.clear();
}

void console::print(const std::string& text) {
  if (terminal_)
    draw(text);
  else
    write(STDOUT_FILENO, text);
}

void console::draw(const std::string& above) {
  measure();
  auto text = back_to_top();
  if (!drawn_.empty() && !above.empty())
    text += "\033[J";
  text += above;
  drawn_.clear();
  for (auto& line : view_.lines(style_)) {
    text += line + "\033[K\n";
    drawn_.push_back(shown_cells(line));
  }
  // A single call erases and writes, so that a half-drawn bar never appears.
  write(STDOUT_FILENO, text + (drawn_.empty() ? "" : "\033[J"));
}

} // namespace troupe
