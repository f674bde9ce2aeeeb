#pragma once

#include "messages/synchronizer.hpp"

namespace troupe {

/// A message that an actor sends to itself after a delay, on the actor's clock.
struct tick {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::tick)
