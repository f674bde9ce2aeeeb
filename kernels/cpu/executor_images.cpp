#include "kernels/cpu/channels.hpp"
#include "kernels/cpu/executor_state.hpp"

// Convolutions and pooling.

namespace troupe {

/// (batch, channels, ...): all further dimensions together are pixels, unless they are height and
/// width.
template <class T>
cpu::images executor<T>::state::images_of(const operand& x) const {
  const auto extent = [&](std::size_t axis) {
    return axis < x.shape.rank() ? static_cast<std::size_t>(x.shape[axis]) : 1;
  };
  const auto count = x.shape.has_batch() ? rows : extent(0);
  if (x.shape.rank() == 4)
    return {count, extent(1), extent(2), extent(3)};
  return {count, extent(1), x.shape.elements(1) / (extent(1) * (x.shape.has_batch() ? 1 : count)),
          1};
}

/// Batch normalization.
template <class T>
void executor<T>::state::execute_channels(const instruction& x) {
  const T* const a = read(x.inputs[0]);
  const T* const b = x.inputs.size() > 1 ? read(x.inputs[1]) : nullptr;
  T* const out = write(x.output);
  const auto channels = elements(x.output); // of the summed ones
  switch (x.op) {
  case operation::multiply_channels:
    cpu::multiply_channels(images_of(x.output), a, b, out);
    break;
  case operation::channel_moments:
    cpu::channel_moments(images_of(x.inputs[0]), a, out);
    break;
  case operation::normalize_channels:
    cpu::normalize_channels(images_of(x.output), a, b, x.factor, out);
    break;
  case operation::normalize_channels_gradient:
    cpu::normalize_channels_gradient(images_of(x.output), a, b, read(x.inputs[2]), x.factor, out);
    break;
  case operation::summed_mean:
    for (std::size_t c = 0; c < channels; ++c)
      out[c] = static_cast<T>(rows) * a[c];
    break;
  case operation::summed_variance: {
    const auto n = static_cast<double>(rows) * x.factor;
    const auto factor = static_cast<T>(static_cast<double>(rows) * (n > 1 ? n / (n - 1) : 1));
    for (std::size_t c = 0; c < channels; ++c)
      out[c] = factor * a[channels + c];
    break;
  }
  default:
    break;
  }
}

template <class T>
void executor<T>::state::execute_image(const instruction& x) {
  const T* const a = read(x.inputs[0]);
  const T* const b = x.inputs.size() > 1 ? read(x.inputs[1]) : nullptr;
  T* const out = write(x.output);
  const auto input = images_of(x.inputs[0]);
  const auto output = images_of(x.output);
  const cpu::finish<T> last{read(x.bias), x.after, read(x.epilogue_operand)};
  const auto each_image = [&](std::size_t count, std::size_t elements, auto f) {
    split_rows(count, elements,
               [&](range part, std::size_t thread) { f(part, scratch_of(thread)); });
  };
  const auto each_plane = [&](const cpu::images& size, auto f) {
    split_rows(size.count * size.channels, size.pixels(),
               [&](range part, std::size_t) { f(part); });
  };
  switch (x.op) {
  case operation::conv2d:
    each_image(input.count, output.per_image(), [&](range part, T* space) {
      cpu::conv2d(input, output, x.window, a, b, last, out, space, part);
    });
    break;
  case operation::conv2d_input_gradient:
    each_image(input.count, output.per_image(), [&](range part, T* space) {
      cpu::conv2d_input_gradient(output, input, x.window, a, b, last, out, space, part);
    });
    break;
  case operation::conv2d_weight_gradient: {
    const auto patch = x.output.shape.elements(1) / extent(x.output, 0);
    split(patch, 8, [&](range part, std::size_t thread) {
      cpu::conv2d_weight_gradient(input, images_of(x.inputs[1]), x.window, a, b, out,
                                  scratch_of(thread), part);
    });
    break;
  }
  case operation::add_channel_bias:
    cpu::add_channel_bias(output, a, b, out);
    break;
  case operation::sum_channels:
    split(input.channels, least_elements / (input.count * input.pixels() + 1) + 1,
          [&](range part, std::size_t) { cpu::sum_channels(input, a, out, part); });
    break;
  case operation::broadcast_channels:
    cpu::broadcast_channels(output, a, out);
    break;
  case operation::max_pool_select:
    each_plane(input,
               [&](range part) { cpu::max_pool_select(input, output, x.window, a, b, out, part); });
    break;
  case operation::max_pool_gradient:
    each_plane(output, [&](range part) {
      cpu::max_pool_gradient(output, input, x.window, a, b, last, out, part);
    });
    break;
  case operation::average_pool:
    each_plane(input,
               [&](range part) { cpu::average_pool(input, output, x.window, a, out, part); });
    break;
  case operation::average_pool_gradient:
    each_plane(output, [&](range part) {
      cpu::average_pool_gradient(output, input, x.window, a, out, part);
    });
    break;
  default:
    execute_channels(x);
    break;
  }
}

template void executor<float>::state::execute_image(const instruction&);
template void executor<double>::state::execute_image(const instruction&);

} // namespace troupe
