#pragma once

#include "kernels/function_ref.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>
#include <string>

// Internal to the executor: the work of a segment, with and without a recording (a CUDA graph).
// These functions throw device_error if work cannot be submitted. The error names the instruction.

namespace troupe::cuda {

struct executor_state;

/// The name of an instruction for errors. If the instruction reads a weight of a layer
/// ("NAME.weight"), this is the name of the layer; otherwise, it is the name of the result.
std::string name_of(const instruction& x);

/// Submits the instructions of segment k, without a recording.
/// @param on_instruction see run_arguments::on_instruction; may be empty
void compute(executor_state& s, std::size_t k, function_ref<void(std::size_t)> on_instruction);

/// Submits segment k as a recording. The second run with the same key (executor_state::recorded)
/// makes the recording. The first run is not recorded: when kernels and cuBLAS are first used, the
/// driver loads the kernels, and cuBLAS allocates memory. A recording allows neither loading nor
/// allocation. If recording fails, the segment runs without a recording, and the next run tries
/// again, at most three times in all.
void compute_recorded(executor_state& s, std::size_t k);

/// Submits this worker's part of the sums over all workers that instruction i needs, and their copy
/// to the pinned memory of executor_state::totals.
/// @param n the number of sums
void compute_sums(executor_state& s, std::size_t i, std::size_t n);

} // namespace troupe::cuda
