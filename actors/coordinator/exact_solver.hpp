#pragma once

#include "actors/model/exact_solution.hpp"
#include "actors/tick.hpp"
#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// The result of the exact solver.
struct solved {
  /// The reason why there is no solution; empty if there is one.
  std::string problem;
  /// The flat parameter vector, float32.
  payload weights;
  std::uint64_t samples = 0;
  double train_loss = 0;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::solved)

namespace troupe {

using solved_listener = caf::typed_actor<rpc<void, solved>>;

/// Computes the exact weights of a linear model on its own thread. Each message handles one block
/// of records, so that the actor can be stopped between two blocks.
class exact_solver : public caf::typed_actor<rpc<void, tick>>::base {
public:
  using super = caf::typed_actor<rpc<void, tick>>::base;

  exact_solver(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
               std::shared_ptr<const dataset> train, std::vector<std::string> feature_names,
               solved_listener listener);

  const char* name() const override { return "troupe.exact_solver"; }

protected:
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void on_tick();

  std::shared_ptr<const job_context> context_;
  std::shared_ptr<const dataset> train_;
  std::vector<std::string> feature_names_;
  solved_listener listener_;
  /// Allocated in the first step and not in the constructor: if the memory is too small, this actor
  /// can then report the problem.
  std::optional<exact_solution> solution_;
};

} // namespace troupe
