#pragma once

#include "messages/interfaces.hpp"

namespace troupe {

/// A message that orders a prober to try addresses. `answer` contains the addresses; the prober
/// adds the results.
struct probe_order {
  proto::Probed answer;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::probe_order)

namespace troupe {

using prober_actor = caf::typed_actor<rpc<proto::Probed, probe_order>>;

/// Tries the addresses of one order on its own thread, answers, and then ends.
class prober : public prober_actor::base {
public:
  using super = prober_actor::base;
  using super::super;

  const char* name() const override { return "troupe.prober"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace troupe
