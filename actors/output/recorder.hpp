#pragma once

#include "actors/model/job_context.hpp"
#include "actors/output/run_report.hpp"
#include "actors/output/storage.hpp"

#include <filesystem>
#include <memory>

namespace troupe {

/// Weights at the end of an epoch: the whole flat vector, float32.
struct record_weights {
  std::uint64_t version = 0;
  payload weights;
};

/// Everything that was sent before is on disk; `problem` says what is not, if anything.
struct record_done {
  std::string problem;
};

struct record_flush {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::record_weights)
TROUPE_LOCAL_MESSAGE(troupe::record_done)
TROUPE_LOCAL_MESSAGE(troupe::record_flush)

namespace troupe {

using recorder_actor = caf::typed_actor<rpc<void, epoch_report>, rpc<void, run_summary>,
                                        rpc<void, record_weights>, rpc<record_done, record_flush>>;

/// Writes the output directory: metrics.jsonl and weights.safetensors. A disk that fails does not
/// end the run: the first problem is kept and told at the end.
class recorder : public recorder_actor::base {
public:
  using super = recorder_actor::base;

  /// `directory` is prepared by the caller. Starts metrics.jsonl anew.
  recorder(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
           std::shared_ptr<storage> where, std::filesystem::path directory);

  const char* name() const override { return "troupe.recorder"; }

protected:
  behavior_type make_behavior() override;

private:
  template <class F>
  void attempt(F write);

  std::shared_ptr<const job_context> context_;
  std::shared_ptr<storage> storage_;
  std::filesystem::path directory_;
  std::string problem_;
};

} // namespace troupe
