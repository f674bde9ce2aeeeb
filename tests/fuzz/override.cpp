// Fuzz target: `--set` overrides, one per line. They are applied to a job one after the other.

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(override, input) {
  static const auto base = parse_job("model { layer { dense { units: 10 } } }"
                                     "data { csv { features: \"a\" features: \"b\" } }",
                                     "job");
  auto job = base;
  auto rest = fuzz::as_text(input);
  // Applies only a few overrides, because each of them copies the job.
  for (int i = 0; i < 8 && !rest.empty(); ++i) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto before = job.SerializeAsString();
    try {
      apply_override(job, line);
    } catch (const input_error&) {
      fuzz::require(job.SerializeAsString() == before, "a refused override changes nothing");
    }
  }
  validate(job);
}
