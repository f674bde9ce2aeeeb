#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/cuda/reductions.hpp"

// The rows of the operation table for convolutions, pooling and batch normalization.

namespace troupe::cuda {

namespace {

struct image_step : step {
  image_step(const step& s) : step(s) {}

  images input = of(0);
  images output = cpu::images_of(x.output, run.rows);
  const window& how = x.window;

  images of(std::size_t i) const { return cpu::images_of(x.inputs[i], run.rows); }
  const float* bias() const { return run.read(x.bias); }
  channel_totals all() const { return {totals(), run.rows_of(x) * input.pixels()}; }
};

channel_sizes channels_of(const images& size) {
  return {size.count, size.channels, size.pixels()};
}

std::size_t space_of_channels(const instruction& x, std::size_t rows) {
  return channel_space(channels_of(cpu::images_of(x.inputs[0], rows)));
}

template <class F>
operation_row row(operation_row rest, F) {
  rest.run = [](const step& s) { F{}(image_step{s}); };
  return rest;
}

void by_channel_of(const image_step& s, channel_operation how) {
  const auto& size = s.output;
  by_channel(s.where(), how,
             {s.elements(),
              size.channels,
              size.pixels(),
              s.a,
              s.b,
              {},
              s.out,
              s.x.inputs[0].type,
              s.x.output.type});
}

/// Computes summed_mean (from = 0) or summed_variance (from = 1). s.a has the means, and then the
/// variances. The result is one of these, times `factor`.
void scale_moments(const step& s, std::size_t from, double factor) {
  const float* const inputs[] = {s.a + from * s.elements()};
  const element_step program[] = {{operation::scale, 0, 0, 0, 1, factor}};
  elementwise(s.where(), program, s.elements(), inputs, 0, s.out);
}

} // namespace

std::span<const operation_row> image_rows() {
  using op = operation;
  using s = const image_step&;
  using how = channel_operation;
  static const operation_row rows[] = {
    row({.op = op::conv2d, .narrow = true, .takes_epilogue = true, .bias = op::add_channel_bias},
        [](s i) {
          conv2d(i.where(), i.input, i.output, i.how, i.values(0), i.values(1), i.bias(), i.last(),
                 i.result());
        }),
    row({.op = op::conv2d_input_gradient,
         .narrow = true,
         .takes_epilogue = true,
         .bias = op::add_channel_bias},
        [](s i) {
          conv2d_input_gradient(i.where(), i.output, i.input, i.how, i.values(0), i.values(1),
                                i.bias(), i.last(), i.result());
        }),
    row({.op = op::conv2d_weight_gradient,
         .space =
           [](const instruction& x, std::size_t rows) {
             const auto parts = weight_gradient_parts(cpu::images_of(x.inputs[0], rows),
                                                      cpu::images_of(x.inputs[1], rows), x.window);
             return (parts * x.output.shape.elements(rows) + 1) / 2; // of float32
           },
         .narrow = true},
        [](s i) {
          conv2d_weight_gradient(i.where(), i.input, i.of(1), i.how, i.values(0), i.values(1),
                                 reinterpret_cast<float*>(i.space()), i.out);
        }),
    row({.op = op::add_channel_bias, .mixed = true, .wide_input = 1},
        [](s i) { by_channel_of(i, how::add); }),
    row({.op = op::multiply_channels, .mixed = true, .wide_input = 1},
        [](s i) { by_channel_of(i, how::multiply); }),
    row({op::broadcast_channels},
        [](s i) {
          const auto& size = i.output;
          by_channel(i.where(), how::broadcast,
                     {i.elements(), size.channels, size.pixels(), nullptr, i.a, {}, i.out});
        }),
    row({.op = op::sum_channels,
         .space =
           [](const instruction& x, std::size_t rows) {
             const auto size = channels_of(cpu::images_of(x.inputs[0], rows));
             return channel_parts(size) * size.channels;
           },
         .narrow = true},
        [](s i) { sum_channels(i.where(), channels_of(i.input), i.values(0), i.space(), i.out); }),
    row({.op = op::channel_moments,
         .space = space_of_channels,
         .sums =
           [](const step& i, double* out) {
             channel_sums(i.where(), channels_of(image_step{i}.input), i.values(0), i.space(), out);
           },
         .narrow = true},
        [](s i) {
          if (const auto all = i.all(); all.sums != nullptr)
            moments_of_sums(i.where(), i.input.channels, all, i.out);
          else
            channel_moments(i.where(), channels_of(i.input), i.values(0), i.space(), i.out);
        }),
    row({.op = op::normalize_channels, .narrow = true, .wide_input = 1},
        [](s i) {
          normalize_channels(i.where(), channels_of(i.output), i.values(0), i.b, i.x.factor,
                             i.result());
        }),
    row({.op = op::normalize_channels_gradient,
         .space = space_of_channels,
         .sums =
           [](const step& i, double* out) {
             channel_products(i.where(), channels_of(image_step{i}.input), i.values(0), i.values(1),
                              i.operand(2), i.space(), out);
           },
         .narrow = true,
         .wide_input = 2},
        [](s i) {
          normalize_channels_gradient(i.where(), channels_of(i.output), i.values(0), i.values(1),
                                      i.operand(2), i.x.factor, i.all(), i.space(), i.result());
        }),
    {op::summed_mean, [](const step& i) { scale_moments(i, 0, static_cast<double>(i.run.rows)); }},
    {op::summed_variance,
     [](const step& i) {
       const auto samples = static_cast<double>(i.run.rows);
       const auto n = static_cast<double>(i.run.rows_of(i.x)) * i.x.factor;
       scale_moments(i, 1, samples * (n > 1 ? n / (n - 1) : 1));
     }},
    row({.op = op::max_pool_select, .narrow = true},
        [](s i) {
          max_pool_select(i.where(), i.input, i.output, i.how, i.values(0), i.values(1),
                          i.result());
        }),
    row({.op = op::max_pool_gradient,
         .space = space_of_product,
         .narrow = true,
         .takes_epilogue = true},
        [](s i) {
          max_pool_gradient(i.where(), i.output, i.input, i.how, i.values(0), i.values(1),
                            i.product());
          finish(i, 1, 1);
        }),
    row({.op = op::average_pool, .narrow = true},
        [](s i) { average_pool(i.where(), i.input, i.output, i.how, i.values(0), i.result()); }),
    row({.op = op::average_pool_gradient, .narrow = true},
        [](s i) {
          average_pool_gradient(i.where(), i.output, i.input, i.how, i.values(0), i.result());
        }),
  };
  return rows;
}

} // namespace troupe::cuda
