#pragma once

#include "apps/troupe/bench/gpu_bench.hpp"

#include <string>

namespace troupe::bench {

/// The results as tables, with a list of the measures that are missing.
std::string gpu_tables(const gpu_results& x);

/// The results as JSON.
std::string gpu_json(const gpu_results& x);

} // namespace troupe::bench
