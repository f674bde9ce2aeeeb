#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Detects that a run does not learn, from the training loss at the end of each epoch. There are
/// two cases. Either the loss is not below the loss of a constant guess. Or it has grown since the
/// previous epoch, by more than a twentieth of the first epoch's loss. This is a plain object, not
/// an actor.
class loss_watch {
public:
  /// @param workers number of training workers
  /// @param guess constant_guess_loss(); empty if unknown
  loss_watch(const proto::Job& job, std::size_t workers, std::optional<double> guess);

  /// Takes the mean training loss of an epoch (numbered from 1). Returns a warning with advice if
  /// the run does not learn. Each kind of warning is given once, and again if the problem returns
  /// after a recovery.
  std::optional<std::string> epoch(std::uint32_t epoch, double loss);

private:
  std::string advice() const;

  const proto::Job& job_;
  std::size_t workers_;
  std::optional<double> guess_;
  std::optional<double> first_;
  std::optional<double> before_;
  bool guess_reported_ = false;
  bool growth_reported_ = false;
};

} // namespace troupe
