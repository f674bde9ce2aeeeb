#pragma once

#include "apps/troupe/bench/gpu_bench.hpp"

#include <string>

namespace troupe::bench {

/// The results as tables, with what was not measured.
std::string gpu_tables(const gpu_results& x);

/// The results as JSON.
std::string gpu_json(const gpu_results& x);

} // namespace troupe::bench
