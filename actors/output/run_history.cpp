#include "actors/output/run_history.hpp"

#include <algorithm>
#include <array>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::size_t most_notices = 300;

} // namespace

void run_history::add(const run_progress& x) {
  if (x.samples == 0)
    return;
  const auto part = static_cast<double>(x.samples)
    / static_cast<double>(std::max<std::uint64_t>(x.epoch_samples, 1));
  progress_.add(
    {x.seconds, x.epoch - 1.0 + std::min(part, 1.0), x.train_loss, x.samples_per_second});
}

void run_history::add(dated_notice x) {
  if (notices_.size() < most_notices)
    notices_.push_back(std::move(x));
  else
    ++notices_left_out_;
}

run_origin here_and_now() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0)
    name[0] = '\0';
  return {name[0] != '\0' ? name.data() : "localhost", std::chrono::system_clock::now()};
}

std::vector<epoch_report> run_history::evaluations() const {
  auto result = epochs();
  result.insert(result.end(), steps().begin(), steps().end());
  std::ranges::stable_sort(result, {}, &epoch_report::when);
  return result;
}

} // namespace troupe
