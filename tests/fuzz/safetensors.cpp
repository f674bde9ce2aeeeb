// Fuzz target: files of tensors. They are parsed, written and parsed again.

#include "kernels/formats/safetensors.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(safetensors, input) {
  const auto file = parse_safetensors(input, "file");
  std::size_t covered = 0;
  for (auto& tensor : file.tensors)
    covered += tensor.bytes.size();
  fuzz::require(covered <= input.size(), "tensors lie within the file");
  const auto bytes = write_safetensors(file);
  const auto again = parse_safetensors(bytes, "written");
  fuzz::require(again.metadata == file.metadata, "metadata comes back");
  fuzz::require(std::ranges::equal(again.tensors, file.tensors,
                                   [](auto& a, auto& b) {
                                     return a.name == b.name && a.dtype == b.dtype
                                       && a.shape == b.shape
                                       && std::ranges::equal(a.bytes, b.bytes);
                                   }),
                "tensors come back");
}
