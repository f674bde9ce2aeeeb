// Job files: parsed, validated, hashed, and written out again.

#include "actors/model/job_file.hpp"
#include "tests/fuzz/target.hpp"

using namespace troupe;

TROUPE_FUZZ_TARGET(job, input) {
  const auto job = parse_job(fuzz::as_text(input), "job");
  const auto hash = job_hash(job);
  fuzz::require(job_hash(parse_job(job.DebugString(), "written")) == hash,
                "a job that is written and read is the same job");
  fuzz::require(first_difference(job, job).empty(), "a job does not differ from itself");
  for (int i = 0; i < job.model().layer_size(); ++i)
    fuzz::require(!layer_name(job.model(), i).empty() || job.model().layer(i).has_name(),
                  "a layer has a name");
  validate(job);
}
