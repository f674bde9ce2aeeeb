#pragma once

#include "kernels/graph/graph.hpp"

namespace troupe::cpu {

template <class T>
struct element_row;
template <class T>
struct cell_loops;

// The loops of elementwise.cpp and recurrent.cpp for floats, compiled for vectors of 64 bytes. They
// give the same results. Call the functions only if has_wide_vectors() is true.

/// A table with operation_count rows, indexed by operation.
const element_row<float>* wide_element_rows();
cell_loops<float> wide_loops_of_cell(cell x);

} // namespace troupe::cpu
