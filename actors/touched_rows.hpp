#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstddef>
#include <vector>

// A batch reads only few rows of a large table (plan::row_sparse_gradients), and its gradient is 0
// in all other rows. The functions here let a step take no time for these other rows, although
// weights and gradients are vectors of all elements.

namespace troupe {

/// The selected elements within `where`, relative to where.begin.
range_list ranges_of(const proto::Selection& x, range where);

/// The tables with row-sparse gradients within `where`, relative to where.begin. In all other
/// tensors, each batch touches all elements.
range_list tables_of(const plan& training, range where);

/// Memory for vectors that are 0 in large parts. If all other references to a vector are gone, its
/// memory is used again: only the parts that were written are set to 0.
class cleared_memory {
public:
  /// @param most number of unused vectors that are kept
  explicit cleared_memory(std::size_t elements, std::size_t most = 2)
    : elements_(elements), most_(most) {}

  /// A vector of zeros.
  /// @param written the parts of the vector that the caller will write, and that the next user
  /// needs to be 0
  payload take(range_list written);

private:
  struct vector {
    payload data;
    range_list written;
  };

  std::size_t elements_;
  std::size_t most_;
  std::vector<vector> vectors_;
};

} // namespace troupe
