// Fuzz target: job files. They are parsed, validated, hashed, and written out again.

#include "actors/model/job_file.hpp"
#include "actors/model/layer_list.hpp"
#include "tests/fuzz/target.hpp"

using namespace troupe;

TROUPE_FUZZ_TARGET(job, input) {
  const auto job = parse_job(fuzz::as_text(input), "job");
  const auto hash = job_hash(job);
  fuzz::require(job_hash(parse_job(job.DebugString(), "written")) == hash,
                "a job that is written and read is the same job");
  fuzz::require(first_difference(job, job).empty(), "a job does not differ from itself");
  validate(job);
  // A layer of a valid job reads only layers before it.
  const auto layers = list_layers(job.model());
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const auto input : layers[i].inputs)
      fuzz::require(input <= i, "a layer reads what was computed before");
}
