#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <utility>

// Fields of layers as values for kernels/graph. Internal to actors/model.

namespace troupe {

activation activation_of(proto::Activation how);

/// Converts `x` if `given` is true. If not, the result is `otherwise`.
initializer initializer_of(bool given, const proto::Initializer& x, initializer otherwise);

/// The field `weights` of a layer, or the default initializer.
template <class Layer>
initializer weights_of(const Layer& x, initializer otherwise) {
  return initializer_of(x.has_weights(), x.weights(), otherwise);
}

/// A height and a width. A list of one number gives both; an empty list gives the defaults y and x.
std::pair<std::int64_t, std::int64_t>
pair_of(const google::protobuf::RepeatedField<std::uint32_t>& list, std::int64_t y, std::int64_t x);

window window_of(const proto::Conv2d& x);
window window_of(const proto::ConvTranspose2d& x);
/// Without `stride`, the stride is the kernel's size.
window window_of(const proto::Pool& x);

} // namespace troupe
