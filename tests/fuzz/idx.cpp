// Fuzz target: IDX arrays, and images with labels. The first byte says how much of the rest is the
// file of labels.

#include "kernels/formats/idx.hpp"
#include "kernels/data/images.hpp"
#include "kernels/error.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

namespace {

void read_array(std::span<const std::byte> input) {
  const auto array = parse_idx(input, "array.idx");
  if (array.type != idx_type::u8)
    return;
  const std::span values{reinterpret_cast<const std::uint8_t*>(array.values.data()),
                         array.values.size()};
  fuzz::require(std::ranges::equal(write_idx_u8(array.shape, values), input),
                "an array that is written is the file it was read from");
}

} // namespace

TROUPE_FUZZ_TARGET(idx, input) {
  try {
    read_array(input);
  } catch (const input_error&) {
  }
  if (input.empty())
    return;
  const auto rest = input.subspan(1);
  const auto labels = std::min<std::size_t>(std::to_integer<std::size_t>(input[0]), rest.size());
  const auto images =
    idx_images(rest.subspan(labels), "images.idx", rest.first(labels), "labels.idx");
  fuzz::require(images->size() > 0, "a data set has records");
  const std::vector<std::uint64_t> records{0, images->size() - 1};
  std::vector<float> features(records.size() * images->record().feature_width());
  std::vector<std::int32_t> classes(records.size());
  images->read(records, std::span<float>{features}, {classes, {}});
  fuzz::require(std::ranges::all_of(features, [](float x) { return x >= 0 && x <= 1; }),
                "pixels lie within 0 and 1");
}
