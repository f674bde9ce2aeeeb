#pragma once

#include "kernels/range.hpp"
#include "messages/proto/wire.pb.h"

#include <algorithm>
#include <cstdint>

namespace troupe {

/// Number of batches of a lease.
inline std::uint64_t batches_of(const proto::Lease& x) {
  const auto positions = x.end() - x.begin();
  return (positions + x.stride() - 1) / x.stride();
}

/// The positions of batch `index` of a lease in the epoch's permutation. The range may be empty if
/// the workers make each step together and too few samples are left.
inline range batch_of(const proto::Lease& x, std::uint64_t index) {
  const auto begin = x.begin() + x.offset() + index * x.stride();
  const auto end = begin + x.batch();
  return {std::min(begin, x.end()), std::min(end, x.end())};
}

/// Number of samples in the first `batches` batches of a lease.
inline std::uint64_t samples_of(const proto::Lease& x, std::uint64_t batches) {
  std::uint64_t result = 0;
  for (std::uint64_t i = 0; i < batches; ++i)
    result += batch_of(x, i).size();
  return result;
}

} // namespace troupe
