// On x86-64, CMake compiles this file for AVX-512.

#include "kernels/cpu/loops_avx512.hpp"

#include "kernels/cpu/element_loops.hpp"
#include "kernels/cpu/recurrent_cells.hpp"

namespace troupe::cpu {

const element_row<float>* wide_element_rows() {
  return element_rows<float>();
}

cell_loops<float> wide_loops_of_cell(cell x) {
  return loops_of_cell<float>(x);
}

} // namespace troupe::cpu
