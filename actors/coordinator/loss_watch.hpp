#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Notices that a run does not learn: at the end of an epoch its training loss is not below that of
/// a constant guess, or has grown by a twentieth of that of the first epoch. Plain state.
class loss_watch {
public:
  /// `guess`: constant_guess_loss(); nothing where it is not known. `workers` that train.
  loss_watch(const proto::Job& job, std::size_t workers, std::optional<double> guess);

  /// The mean training loss of an epoch, from 1. What the operator should know, with what to do
  /// about it: of each kind the first time, and again after the run had recovered.
  std::optional<std::string> epoch(std::uint32_t epoch, double loss);

private:
  std::string advice() const;

  const proto::Job& job_;
  std::size_t workers_;
  std::optional<double> guess_;
  std::optional<double> first_;
  std::optional<double> before_;
  bool told_guess_ = false;
  bool told_growth_ = false;
};

} // namespace troupe
