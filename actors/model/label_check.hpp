#pragma once

#include "actors/model/data_builder.hpp"

namespace troupe {

/// Refuses targets outside the range of the model's loss: 0 to 1 for BINARY_CROSS_ENTROPY, -1 and 1
/// for HINGE. Outside this range, these losses have no meaning and no lower bound. Reads all
/// records, but only for these two losses.
/// @throws input_error that names the first such target, and the number of its record in its file.
void check_targets(const proto::Model& model, const job_data& data);

} // namespace troupe
