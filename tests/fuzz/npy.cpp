// Fuzz target: NumPy arrays (.npy), and archives of them (.npz).

#include "kernels/formats/npy.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/npz.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

namespace {

void read_array(std::span<const std::byte> input) {
  const auto array = parse_npy(input, "x.npy");
  double sum = 0;
  for (std::uint64_t i = 0; i < array.size(); ++i)
    sum += array.at(i);
  fuzz::require(!(array.size() == 0 && sum != 0), "no elements have no sum");
  const auto written = write_npy(array.type, array.shape, array.values);
  const auto again = parse_npy(written, "y.npy");
  fuzz::require(again.type == array.type && again.shape == array.shape
                  && std::ranges::equal(again.values, array.values),
                "an array that is written is the one that was read");
}

} // namespace

TROUPE_FUZZ_TARGET(npy, input) {
  try {
    const npz_file file{input, "x.npz"};
    for (const auto& name : file.names())
      read_array(file.read(name, 1 << 20));
  } catch (const input_error&) {
  }
  read_array(input);
}
