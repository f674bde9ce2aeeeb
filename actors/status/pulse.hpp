#pragma once

#include "actors/status/activity_board.hpp"
#include "actors/tick.hpp"
#include "messages/interfaces.hpp"

#include <memory>

namespace troupe {

struct pulse_options {
  std::uint64_t view = 0;
  task_name task;
  std::shared_ptr<const activity_board> board;
  coordinator_actor coordinator;
};

/// Interval between reports of a task. The first reports have shorter intervals, so that a short run
/// has some, too.
inline constexpr std::chrono::milliseconds pulse_interval{250};
inline constexpr std::chrono::milliseconds first_intervals{50};
inline constexpr int first_reports = 10;

/// Regularly reports a task's activity to the coordinator. It is a separate actor, so that it
/// continues while the task's other actors are busy or stuck. If its reports stop, its process is
/// paused, dead or cut off from the network.
class pulse : public caf::typed_actor<rpc<void, tick>>::base {
public:
  using super = caf::typed_actor<rpc<void, tick>>::base;

  pulse(caf::actor_config& cfg, pulse_options options);

  const char* name() const override { return "troupe.pulse"; }

protected:
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void beat();

  pulse_options options_;
  std::uint64_t host_;
  int beats_ = 0;
  activity_board::reported reported_;
};

} // namespace troupe
