#include "kernels/cpu/channels.hpp"
#include "kernels/cpu/convolution.hpp"
#include "kernels/cpu/operation_table.hpp"

// Convolutions, pooling and batch normalization.

namespace troupe::cpu {

namespace {

/// The scratch space of a convolution from `in` to `out`, or of one of its gradients.
template <class T>
std::size_t scratch_of(const operand& in, const operand& out, const instruction& x) {
  auto from = images_of(in, 1);
  auto to = images_of(out, 1);
  from.count = to.count = 1;
  return conv2d_scratch_elements<T>(from, to, x.window);
}

/// A step whose operands are images, with the sizes of these images.
template <class T>
struct image_step : step<T> {
  image_step(const step<T>& x) : step<T>(x) {}

  images input = of(0);
  images output = images_of(this->x.output, this->run.rows);
  const window& how = this->x.window;
  finish<T> last{this->run.read(this->x.bias), this->x.after,
                 this->run.read(this->x.epilogue_operand)};

  /// Number of values per channel in the images of all workers.
  std::size_t all_pixels() const { return this->run.rows_of(this->x) * input.pixels(); }
  images of(std::size_t i) const { return images_of(this->x.inputs[i], this->run.rows); }
  /// Divides the images of the input among threads. Calls f(range of images, scratch space).
  template <class F>
  void each_image(F f) const {
    this->run.split_rows(input.count, output.per_image(), [&](range part, std::size_t thread) {
      f(part, this->run.scratch_of(thread));
    });
  }
  /// Divides the planes of a tensor among threads. A plane is one channel of one image. Calls
  /// f(range of planes).
  template <class F>
  void each_plane(const images& size, F f) const {
    this->run.split_rows(size.count * size.channels, size.pixels(),
                         [&](range part, std::size_t) { f(part); });
  }
};

template <class T, class F>
operation_row<T> row(operation_row<T> rest, F) {
  rest.run = [](const step<T>& s) { F{}(image_step<T>{s}); };
  return rest;
}

/// out = factor times the means (summed_mean) if `from` is 0, or times the variances
/// (summed_variance) if `from` is 1.
template <class T>
void scale_moments(const step<T>& s, std::size_t from, T factor) {
  const auto channels = s.elements();
  for (std::size_t c = 0; c < channels; ++c)
    s.out[c] = factor * s.a[from * channels + c];
}

} // namespace

template <class T>
std::span<const operation_row<T>> image_rows() {
  using op = operation;
  using s = const image_step<T>&;
  static const operation_row<T> rows[] = {
    row<T>({.op = op::conv2d,
            .scratch = [](const instruction& x,
                          std::size_t) { return scratch_of<T>(x.inputs[0], x.output, x); },
            .takes_epilogue = true,
            .bias = op::add_channel_bias},
           [](s i) {
             i.each_image([&](range part, T* space) {
               conv2d(i.input, i.output, i.how, i.a, i.b, i.last, i.out, space, part);
             });
           }),
    row<T>({.op = op::conv2d_input_gradient,
            .scratch = [](const instruction& x,
                          std::size_t) { return scratch_of<T>(x.output, x.inputs[0], x); },
            .takes_epilogue = true,
            .bias = op::add_channel_bias},
           [](s i) {
             i.each_image([&](range part, T* space) {
               conv2d_input_gradient(i.output, i.input, i.how, i.a, i.b, i.last, i.out, space,
                                     part);
             });
           }),
    row<T>({.op = op::conv2d_weight_gradient,
            .scratch = [](const instruction& x,
                          std::size_t) { return scratch_of<T>(x.inputs[0], x.inputs[1], x); }},
           [](s i) {
             const auto patch = i.x.output.shape.elements(1) / i.run.extent(i.x.output, 0);
             i.run.split(patch, 8, [&](range part, std::size_t thread) {
               conv2d_weight_gradient(i.input, i.of(1), i.how, i.a, i.b, i.out,
                                      i.run.scratch_of(thread), part);
             });
           }),
    row<T>({op::add_channel_bias}, [](s i) { add_channel_bias(i.output, i.a, i.b, i.out); }),
    row<T>({op::sum_channels},
           [](s i) {
             const auto each = i.input.count * i.input.pixels();
             i.run.split(i.input.channels, least_elements / (each + 1) + 1,
                         [&](range part, std::size_t) { sum_channels(i.input, i.a, i.out, part); });
           }),
    row<T>({op::broadcast_channels}, [](s i) { broadcast_channels(i.output, i.a, i.out); }),
    row<T>({op::multiply_channels}, [](s i) { multiply_channels(i.output, i.a, i.b, i.out); }),
    row<T>({.op = op::channel_moments,
            .sums = [](const step<T>& i,
                       double* out) { channel_sums(image_step<T>{i}.input, i.a, out); }},
           [](s i) {
             if (const auto* totals = i.totals())
               moments_of_sums(i.input.channels, totals, i.all_pixels(), i.out);
             else
               channel_moments(i.input, i.a, i.out);
           }),
    row<T>({op::normalize_channels},
           [](s i) { normalize_channels(i.output, i.a, i.b, i.x.factor, i.out); }),
    row<T>({.op = op::normalize_channels_gradient,
            .sums =
              [](const step<T>& i, double* out) {
                channel_products(image_step<T>{i}.input, i.a, i.b, i.operand(2), out);
              }},
           [](s i) {
             normalize_channels_gradient(i.output, i.a, i.b, i.operand(2), i.x.factor, i.totals(),
                                         i.all_pixels(), i.out);
           }),
    {op::summed_mean, [](const step<T>& i) { scale_moments(i, 0, static_cast<T>(i.run.rows)); }},
    {op::summed_variance,
     [](const step<T>& i) {
       const auto rows = static_cast<double>(i.run.rows);
       const auto n = static_cast<double>(i.run.rows_of(i.x)) * i.x.factor;
       scale_moments(i, 1, static_cast<T>(rows * (n > 1 ? n / (n - 1) : 1)));
     }},
    row<T>({op::max_pool_select},
           [](s i) {
             i.each_plane(i.input, [&](range part) {
               max_pool_select(i.input, i.output, i.how, i.a, i.b, i.out, part);
             });
           }),
    row<T>({.op = op::max_pool_gradient, .takes_epilogue = true},
           [](s i) {
             i.each_plane(i.output, [&](range part) {
               max_pool_gradient(i.output, i.input, i.how, i.a, i.b, i.last, i.out, part);
             });
           }),
    row<T>({op::average_pool},
           [](s i) {
             i.each_plane(i.input, [&](range part) {
               average_pool(i.input, i.output, i.how, i.a, i.out, part);
             });
           }),
    row<T>({op::average_pool_gradient},
           [](s i) {
             i.each_plane(i.output, [&](range part) {
               average_pool_gradient(i.output, i.input, i.how, i.a, i.out, part);
             });
           }),
  };
  return rows;
}

template std::span<const operation_row<float>> image_rows();
template std::span<const operation_row<double>> image_rows();

} // namespace troupe::cpu
