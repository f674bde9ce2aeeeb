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

/// How often a task is heard of.
inline constexpr std::chrono::milliseconds pulse_interval{250};

/// Tells the coordinator what a task does, again and again. An actor of its own, so that it goes on
/// while those of the task are busy or stuck; when it ceases, the process is paused or cut off.
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
};

} // namespace troupe
