#include "kernels/data/dataset.hpp"

namespace troupe {

dataset::~dataset() = default;

} // namespace troupe
