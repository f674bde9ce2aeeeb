#pragma once

#include "messages/interfaces.hpp"

namespace troupe {

/// An answer to complete: what came of connecting to the addresses it names.
struct probe_order {
  proto::Probed answer;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::probe_order)

namespace troupe {

using prober_actor = caf::typed_actor<rpc<proto::Probed, probe_order>>;

/// Tries the addresses of one order, in a thread of its own, and ends.
class prober : public prober_actor::base {
public:
  using super = prober_actor::base;
  using super::super;

  const char* name() const override { return "troupe.prober"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace troupe
