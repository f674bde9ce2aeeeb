#include "apps/troupe/logging.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/formats/printable.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace troupe {

namespace {

spdlog::level::level_enum level_of(const std::string& text) {
  const std::vector<std::string> levels{"trace", "debug", "info", "warn", "error", "off"};
  if (std::ranges::find(levels, text) == levels.end())
    throw input_error{"--log-level=" + printable(text) + ": there is no such level; "
                      + suggestion(text, levels)};
  return spdlog::level::from_str(text);
}

spdlog::level::level_enum level_of(notice_level x) {
  switch (x) {
  case notice_level::info:
    break;
  case notice_level::warning:
    return spdlog::level::warn;
  case notice_level::error:
    return spdlog::level::err;
  }
  return spdlog::level::info;
}

} // namespace

void start_logging(const std::string& level, const std::string& name) {
  const auto least = level.empty() ? spdlog::level::info : level_of(level);
  auto logger =
    std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::string pattern = name.empty() ? "%v" : "%n: %v";
  if (!level.empty())
    pattern = "%Y-%m-%d %H:%M:%S.%e %-5l " + pattern;
  // On a terminal, the cursor may be in a line with the progress bar. This prefix erases that line.
  const char* terminal = std::getenv("TERM");
  const bool draws = terminal != nullptr && std::string_view{terminal} != "dumb";
  if (draws && ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1)
    pattern = "\r\033[K" + pattern;
  logger->set_pattern(pattern);
  logger->set_level(least);
  logger->flush_on(least);
  spdlog::set_default_logger(std::move(logger));
}

void log_notice(const run_notice& x) {
  spdlog::log(level_of(x.level), "{}", printable(x.text, true));
}

} // namespace troupe
