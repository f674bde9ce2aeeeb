#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "messages/synchronizer.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Asks the writer for a checkpoint. Each slot (the weights, or a vector of the optimizer's state)
/// is a list of parts, in order. The writer sets `manifest.files`.
struct write_checkpoint {
  checkpoint_manifest manifest;
  std::vector<std::vector<payload>> slots;
};

/// The result of write_checkpoint.
struct checkpoint_written {
  std::uint64_t step = 0;
  /// The reason why the checkpoint is not on disk; empty if it was written.
  std::string problem;
  /// The reason why older checkpoints could not be removed; empty if there was no problem.
  std::string kept_too_many;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::write_checkpoint)
TROUPE_LOCAL_MESSAGE(troupe::checkpoint_written)

namespace troupe {

using checkpoint_writer_actor = caf::typed_actor<rpc<void, write_checkpoint>>;
using checkpoint_listener = caf::typed_actor<rpc<void, checkpoint_written>>;

/// Writes checkpoints to a folder on its own thread, and removes old ones.
class checkpoint_writer : public checkpoint_writer_actor::base {
public:
  using super = checkpoint_writer_actor::base;

  checkpoint_writer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                    std::shared_ptr<storage> where, std::filesystem::path folder,
                    checkpoint_listener listener);

  const char* name() const override { return "troupe.checkpoint_writer"; }

protected:
  behavior_type make_behavior() override;
  /// Drops `listener_`. Otherwise, this writer and its listener would keep each other alive,
  /// because the listener holds a handle to this writer.
  void on_exit() override;

private:
  void on_write(const write_checkpoint& x);

  std::shared_ptr<const job_context> context_;
  std::shared_ptr<storage> storage_;
  std::filesystem::path folder_;
  checkpoint_listener listener_;
};

} // namespace troupe
