// Fuzz target: manifests of checkpoints. They are parsed, written, and parsed again.

#include "actors/checkpoint/checkpoint_manifest.hpp"
#include "tests/fuzz/target.hpp"

using namespace troupe;

TROUPE_FUZZ_TARGET(checkpoint, input) {
  const auto manifest = parse_manifest(input, "checkpoint.json");
  fuzz::require(manifest.cut.samples() <= manifest.data.train_records,
                "no more remains of an epoch than it has");
  const auto text = to_json(manifest);
  fuzz::require(to_json(parse_manifest(std::as_bytes(std::span{text}), "written")) == text,
                "a manifest that is written and read is the same manifest");
}
