// Fuzz target: weights files. They are read for a small model.

#include "actors/model/model_file.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(model, input) {
  static const layout parameters = [] {
    layout result;
    result.add("dense_1.weight", {2, 3});
    result.add("dense_1.bias", {2});
    return result;
  }();
  const auto read = read_model(input, parameters, "weights.safetensors");
  fuzz::require(read.weights.size() == parameters.size(), "a file fills the layout");
  const auto again =
    read_model(write_model(parameters, read.weights, read.info), parameters, "written");
  fuzz::require(std::ranges::equal(std::as_bytes(std::span{again.weights}),
                                   std::as_bytes(std::span{read.weights})),
                "weights come back, bit for bit");
  fuzz::require(again.info.version == read.info.version
                  && again.info.job_hash == read.info.job_hash,
                "what a file says of itself comes back");
}
