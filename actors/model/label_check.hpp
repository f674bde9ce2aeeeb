#pragma once

#include "actors/model/data_builder.hpp"

namespace troupe {

/// Refuses targets outside the range of the model's loss: BINARY_CROSS_ENTROPY takes 0 to 1, HINGE
/// -1 and 1. Outside of these, a loss has no meaning and no lower bound. Reads all records, for
/// these two losses only.
/// @throws input_error naming the first such record, by its number in its file, and the target.
void check_targets(const proto::Model& model, const job_data& data);

} // namespace troupe
