#pragma once

#include "messages/proto/wire.pb.h"

#include <bit>
#include <cstdint>

namespace troupe {

/// A worker's loss scale for float16 (LossScale in job.proto). A checkpoint stores it, and a
/// resumed run continues from it.
struct loss_scale_state {
  /// A power of two, from 1 to 2^60.
  std::uint64_t value = 1;
  /// Number of batches in a row without an overflow since the scale last changed.
  std::uint32_t batches = 0;

  bool valid() const noexcept {
    return std::has_single_bit(value) && value <= std::uint64_t{1} << 60;
  }
  bool operator==(const loss_scale_state&) const = default;
};

inline proto::LossScaleState to_proto(const loss_scale_state& x) {
  proto::LossScaleState result;
  result.set_value(x.value);
  result.set_batches(x.batches);
  return result;
}

inline loss_scale_state from_proto(const proto::LossScaleState& x) {
  return {x.value(), x.batches()};
}

} // namespace troupe
