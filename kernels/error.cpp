#include "kernels/error.hpp"

namespace troupe {

input_error::~input_error() = default;

} // namespace troupe
