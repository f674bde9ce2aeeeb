#pragma once

#include "messages/synchronizer.hpp"

namespace troupe {

/// A reminder that an actor sends to itself, on the actor clock.
struct tick {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::tick)
