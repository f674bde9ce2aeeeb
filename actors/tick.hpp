#pragma once

#include "messages/synchronizer.hpp"

namespace troupe {

/// An actor's reminder to itself, on the actor clock.
struct tick {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::tick)
