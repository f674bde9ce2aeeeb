#include "actors/cluster/transport.hpp"

namespace troupe {

transport::~transport() = default;

} // namespace troupe
