#include "actors/status/pulse.hpp"

#include "actors/boot_id.hpp"

#include <algorithm>

namespace troupe {

pulse::pulse(caf::actor_config& cfg, pulse_options options)
  : super(cfg), options_(std::move(options)), host_(boot_number()) {}

pulse::behavior_type pulse::make_behavior() {
  beat();
  return {[this](tick) { beat(); }};
}

void pulse::on_exit() {
  options_.coordinator = nullptr;
}

void pulse::beat() {
  const auto now = clock().now();
  auto status = options_.board->status(now);
  reported_ = options_.board->add_ended(status, reported_);
  status.set_clock(static_cast<std::uint64_t>(now.time_since_epoch().count()));
  status.set_host(host_);
  status.set_view(options_.view);
  *status.mutable_task() = to_proto(options_.task);
  send(options_.coordinator, std::move(status));
  beats_ = std::min(beats_ + 1, first_reports + 1);
  delayed_send(this, beats_ > first_reports ? pulse_interval : first_intervals, tick{});
}

} // namespace troupe
