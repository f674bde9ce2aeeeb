#include "actors/model/layer_values.hpp"

#include <tuple>

namespace troupe {

namespace {

/// Kernel, stride and padding. A stride of 0 means that the stride equals the kernel.
template <class Layer>
window sliding(const Layer& x, std::int64_t stride) {
  window result;
  std::tie(result.height, result.width) = pair_of(x.kernel(), 1, 1);
  std::tie(result.stride_y, result.stride_x) =
    pair_of(x.stride(), stride > 0 ? stride : result.height, stride > 0 ? stride : result.width);
  std::tie(result.pad_y, result.pad_x) = pair_of(x.padding(), 0, 0);
  return result;
}

template <class Convolution>
window convolving(const Convolution& x) {
  auto result = sliding(x, 1);
  std::tie(result.dilation_y, result.dilation_x) = pair_of(x.dilation(), 1, 1);
  result.groups = x.groups();
  return result;
}

} // namespace

activation activation_of(proto::Activation how) {
  switch (how) {
  case proto::NONE:
    return activation::none;
  case proto::RELU:
    return activation::relu;
  case proto::TANH:
    return activation::tanh;
  case proto::SIGMOID:
    return activation::sigmoid;
  case proto::LEAKY_RELU:
    return activation::leaky_relu;
  case proto::GELU:
    return activation::gelu;
  case proto::SILU:
    return activation::silu;
  }
  return activation::none;
}

initializer initializer_of(bool given, const proto::Initializer& x, initializer otherwise) {
  if (!given)
    return otherwise;
  switch (x.kind_case()) {
  case proto::Initializer::kConstant:
    return initializer::constant(x.constant().value());
  case proto::Initializer::kGlorotUniform:
    return initializer::glorot_uniform();
  case proto::Initializer::kHeUniform:
    return initializer::he_uniform();
  case proto::Initializer::kHeNormal:
    return initializer::he_normal();
  case proto::Initializer::kGlorotNormal:
    return initializer::glorot_normal();
  case proto::Initializer::kNormal:
    return initializer::normal(x.normal().deviation());
  case proto::Initializer::kUniform:
    return initializer::uniform(x.uniform().bound());
  case proto::Initializer::kOrthogonal:
    return initializer::orthogonal(x.orthogonal().gain());
  case proto::Initializer::KIND_NOT_SET:
    break;
  }
  return otherwise;
}

std::pair<std::int64_t, std::int64_t>
pair_of(const google::protobuf::RepeatedField<std::uint32_t>& list, std::int64_t y,
        std::int64_t x) {
  if (list.empty())
    return {y, x};
  return {list[0], list[list.size() - 1]};
}

window window_of(const proto::Conv2d& x) {
  return convolving(x);
}

window window_of(const proto::ConvTranspose2d& x) {
  return convolving(x);
}

window window_of(const proto::Pool& x) {
  auto result = sliding(x, 0);
  result.ceil_mode = x.ceil_mode();
  return result;
}

} // namespace troupe
