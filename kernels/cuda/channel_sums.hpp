#pragma once

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

// Sums over the images and pixels of each channel, in double. In the first launch, each block adds
// up a part of a channel. In the second launch, a warp adds up the parts of a channel. If channels
// have only one part, there is no second launch.
//
// The type argument `Terms` has:
//   `static constexpr unsigned sums`: the number of sums of a channel
//   `bool packs() const`: true if all elements can be loaded in packs
//   `void add(width<W>, std::size_t c, std::size_t i, bool packed, double (&totals)[sums]) const`:
//     adds the terms of elements [i, i + W), which belong to channel c
// The type argument `Result` has:
//   `void store(std::size_t c, const double (&totals)[sums]) const`: takes the sums of channel c

namespace troupe::cuda {

/// A block adds up a part of the images and pixels of a channel. A thread adds up W neighbouring
/// pixels at a time.
template <unsigned W, class Terms, class Result>
struct channel_sum {
  static constexpr auto sums = Terms::sums;
  Terms terms;
  Result result;
  view<double> partial; // (sums, channels, parts); unused if there is only one part
  std::size_t channels, parts;
  std::size_t packs;      // per channel, over all images
  divider packs_of_image; // per channel, in one image
  bool packed;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<double>(block_warps);
    for (auto task = t.block(); task < channels * parts; task += t.blocks()) {
      const auto channel = task / parts;
      const auto part = task % parts;
      const auto end = packs * (part + 1) / parts;
      double totals[sums] = {};
      for (auto p = packs * part / parts + t.index(); p < end; p += block_threads) {
        const auto [image, pack] = packs_of_image(p);
        const auto first = (image * channels + channel) * packs_of_image.divisor() + pack;
        terms.add(width<W>{}, channel, first * W, packed, totals);
      }
      TROUPE_UNROLL
      for (unsigned s = 0; s < sums; ++s) {
        totals[s] = block_sum(t, totals[s], space);
        if (t.index() == 0 && parts > 1)
          partial.store(s * channels * parts + task, totals[s]);
      }
      if (t.index() == 0 && parts == 1)
        result.store(channel, totals);
    }
  }
};

/// A warp adds up the parts of all sums of a channel.
template <unsigned Sums, class Result>
struct channel_total {
  Result result;
  view<const double> partial; // (Sums, channels, parts)
  std::size_t channels, parts;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.first_warp(); c < channels; c += t.warp_stride()) {
      double totals[Sums] = {};
      TROUPE_UNROLL
      for (unsigned s = 0; s < Sums; ++s) {
        for (std::size_t part = t.lane(); part < parts; part += warp_threads)
          totals[s] += partial.load((s * channels + c) * parts + part);
        totals[s] = warp_sum(t, totals[s]);
      }
      if (t.lane() == 0)
        result.store(c, totals);
    }
  }
};

/// Adds up the parts of each sum in `partial` (Sums, channels, parts), and passes the totals to
/// `result`.
template <unsigned Sums, class Result>
void add_channel_parts(stream where, const char* name, std::size_t channels, std::size_t parts,
                       const double* partial, const Result& result) {
  launch(where, name, {blocks_for(channels, block_warps)},
         channel_total<Sums, Result>{result, {partial, Sums * channels * parts}, channels, parts});
}

/// Passes the sums of all channels to `result`. `space` is work space: it has channel_parts()
/// elements for each sum of each channel.
template <class Terms, class Result>
void sum_by_channel(stream where, const char* name, const channel_sizes& size, const Terms& terms,
                    double* space, const Result& result) {
  const auto parts = channel_parts(size);
  const auto each = size.count * size.pixels;
  const auto launch_with = [&]<unsigned W>(width<W>) {
    launch(where, name, {blocks_for(size.channels * parts, 1), block_warps * sizeof(double)},
           channel_sum<W, Terms, Result>{terms,
                                         result,
                                         {space, Terms::sums * size.channels * parts},
                                         size.channels,
                                         parts,
                                         each / W,
                                         {size.pixels / W, each},
                                         terms.packs()});
  };
  if (size.pixels % pack_width == 0)
    launch_with(width<pack_width>{});
  else
    launch_with(width<1>{});
  if (parts > 1)
    add_channel_parts<Terms::sums>(where, name, size.channels, parts, space, result);
}

} // namespace troupe::cuda
