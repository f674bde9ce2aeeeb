#pragma once

#include "apps/troupe/bench/gpu_bench.hpp"

#include <string>

namespace troupe::bench {

/// The results as text tables, with a list of the measures that have no results.
std::string gpu_tables(const gpu_results& x);

std::string gpu_json(const gpu_results& x);

} // namespace troupe::bench
