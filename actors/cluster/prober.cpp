#include "actors/cluster/prober.hpp"

#include "actors/cluster/probe.hpp"

namespace troupe {

prober::behavior_type prober::make_behavior() {
  return {[this](const probe_order& x) {
    auto answer = x.answer;
    probe_all(*answer.mutable_reach());
    quit();
    return answer;
  }};
}

} // namespace troupe
