#include "apps/troupe/console.hpp"

#include "apps/troupe/logging.hpp"
#include "apps/troupe/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <unistd.h>

namespace troupe {

namespace {

constexpr int bar_width = 24;

std::string accuracy(const std::optional<double>& x) {
  return x ? fmt::format("  accuracy {:.2f} %", 100 * *x) : "";
}

} // namespace

console::console(caf::actor_config& cfg) : super(cfg), terminal_(::isatty(STDOUT_FILENO) == 1) {}

console::behavior_type console::make_behavior() {
  return {
    [this](const run_progress& x) { on_progress(x); },
    [this](const epoch_report& x) { on_epoch(x); },
    [this](const run_summary& x) {
      clear_bar();
      fmt::print("{}", format_summary(x));
      std::fflush(stdout);
    },
    [this](const run_notice& x) { on_notice(x); },
  };
}

void console::on_progress(const run_progress& x) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ && now - last_line_ < std::chrono::seconds{1})
    return;
  last_line_ = now;
  const auto done =
    std::min(1.0, static_cast<double>(x.samples) / static_cast<double>(x.epoch_samples));
  auto text = fmt::format("epoch {}/{}  {:3.0f} %", x.epoch, x.epochs, 100 * done);
  if (x.samples > 0)
    fmt::format_to(std::back_inserter(text), "  loss {:.4f}  {} samples/s", x.train_loss,
                   grouped(x.samples_per_second));
  if (terminal_) {
    const auto filled = static_cast<int>(done * bar_width);
    fmt::print("\r[{:=<{}}{:<{}}] {}\033[K", "", filled, "", bar_width - filled, text);
    bar_shown_ = true;
  } else {
    fmt::print("{}\n", text);
  }
  std::fflush(stdout);
}

void console::on_epoch(const epoch_report& x) {
  clear_bar();
  fmt::print("epoch {}/{}  loss {:.4f}  test loss {:.4f}{}  {} samples/s\n", x.epoch, x.epochs,
             x.train_loss, x.test_loss, accuracy(x.test_accuracy), grouped(x.samples_per_second));
  std::fflush(stdout);
}

void console::on_notice(const run_notice& x) {
  clear_bar();
  log_notice(x);
}

void console::clear_bar() {
  if (!bar_shown_)
    return;
  fmt::print("\r\033[K");
  bar_shown_ = false;
}

std::string format_summary(const run_summary& x) {
  std::string result;
  const auto line = [&](const char* what, const std::string& value) {
    fmt::format_to(std::back_inserter(result), "  {:<20}{}\n", what, value);
  };
  if (!x.failure.empty())
    result += fmt::format("{}: {}\n", x.interrupted ? "stopped" : "failed", x.failure);
  if (x.samples == 0)
    return result;
  line("protocol",
       fmt::format("{}, {} worker{}", x.protocol, x.workers, x.workers == 1 ? "" : "s"));
  line("seconds", fmt::format("{:.2f}", x.seconds));
  line("samples/s", grouped(x.samples_per_second));
  line("training loss", fmt::format("{:.5g}", x.train_loss));
  line("test loss", fmt::format("{:.5g}", x.test_loss));
  if (x.test_accuracy)
    line("test accuracy", fmt::format("{:.2f} %", 100 * *x.test_accuracy));
  line("gradients",
       fmt::format("{} applied, {} rejected as too old, {} given back, {} lost",
                   grouped(static_cast<double>(x.applied)),
                   grouped(static_cast<double>(x.rejected_stale)),
                   grouped(static_cast<double>(x.requeued)), grouped(static_cast<double>(x.lost))));
  line("",
       x.protocol == "ring" ? "(counted once per ring member)"
                            : "(counted once per parameter server)");
  line("staleness",
       fmt::format("gradients came from weights {:.2f} updates old on average", x.staleness_mean));
  if (!x.coefficients.empty())
    line("coefficients", fmt::format("{:.6f}", fmt::join(x.coefficients, "  ")));
  line("weights", "sha256 " + x.weights_sha256);
  if (!x.output.empty())
    line("written to", x.output);
  return result;
}

} // namespace troupe
