#pragma once

#include "kernels/graph/graph.hpp"

namespace troupe::cpu {

template <class T>
struct element_row;
template <class T>
struct cell_loops;

// The loops of elementwise.cpp and recurrent.cpp over floats, with vectors of 64 bytes and the same
// results. Call the functions only if has_wide_vectors().

/// operation_count rows.
const element_row<float>* wide_element_rows();
cell_loops<float> wide_loops_of_cell(cell x);

} // namespace troupe::cpu
