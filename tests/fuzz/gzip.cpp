// Fuzz target: gzip. Compresses the input into two gzip members and decompresses them. Then
// decompresses the input itself.

#include "kernels/formats/gzip.hpp"
#include "kernels/error.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

namespace {

constexpr std::uint64_t most = std::uint64_t{1} << 20;

void round_trip(std::span<const std::byte> input) {
  auto bytes = gzip(input.first(input.size() / 2));
  const auto second = gzip(input.subspan(input.size() / 2));
  bytes.insert(bytes.end(), second.begin(), second.end());
  fuzz::require(std::ranges::equal(gunzip(bytes, input.size(), "two.gz"), input),
                "what was compressed comes back");
}

} // namespace

TROUPE_FUZZ_TARGET(gzip, input) {
  round_trip(input);
  fuzz::require(gunzip(input, most, "one.gz").size() <= most, "output has a bound");
}
