#pragma once

#include "kernels/data/record.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Detects that a run does not learn, from the training loss at the end of each epoch. There are
/// two cases. Either the loss is hardly below the loss of a constant guess, although the weights
/// were updated many times. Or it has grown since the previous epoch, by more than a twentieth of
/// the first epoch's loss. This is a plain object, not an actor.
class loss_watch {
public:
  struct options {
    /// Number of training workers.
    std::size_t workers = 1;
    /// constant_guess_loss(); empty if unknown.
    std::optional<double> guess = std::nullopt;
    double updates_per_epoch = 0;
    feature_kind features = feature_kind::numbers;
  };

  loss_watch(const proto::Job& job, const options& how);

  /// Takes the mean training loss of an epoch (numbered from 1). Returns a warning with advice if
  /// the run does not learn. Each kind of warning is given once, and again if the problem returns
  /// after a recovery.
  std::optional<std::string> epoch(std::uint32_t epoch, double loss);

private:
  std::string guess_text(double loss, bool falls) const;
  std::string lower_rate() const;
  std::string scaling() const;

  const proto::Job& job_;
  options how_;
  std::optional<double> first_;
  std::optional<double> before_;
  bool guess_reported_ = false;
  bool growth_reported_ = false;
};

} // namespace troupe
