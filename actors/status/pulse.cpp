#include "actors/status/pulse.hpp"

namespace troupe {

pulse::pulse(caf::actor_config& cfg, pulse_options options)
  : super(cfg), options_(std::move(options)) {}

pulse::behavior_type pulse::make_behavior() {
  beat();
  return {[this](tick) { beat(); }};
}

void pulse::on_exit() {
  options_.coordinator = nullptr;
}

void pulse::beat() {
  auto status = options_.board->status(clock().now());
  status.set_view(options_.view);
  *status.mutable_task() = to_proto(options_.task);
  send(options_.coordinator, std::move(status));
  delayed_send(this, pulse_interval, tick{});
}

} // namespace troupe
