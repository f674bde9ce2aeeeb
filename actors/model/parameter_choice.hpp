#pragma once

#include "kernels/graph/layout.hpp"
#include "messages/proto/job.pb.h"

#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Which parameters of a model stay as they are: what `model.freeze` and `model.train` say, while
/// the model is built. Reads `model` as long as it lives.
class parameter_choice {
public:
  explicit parameter_choice(const proto::Model& model);

  /// The kind of a parameter, frozen or `usual`. To be asked once for each.
  /// @param stays why it would be frozen without freeze and train; empty: it would not
  parameter_kind kind_of(const std::string& name, parameter_kind usual,
                         const std::string& stays = {});

  /// Frozen parameters, and why, for people.
  const std::map<std::string, std::string>& frozen() const noexcept { return frozen_; }

  /// After all parameters were asked for.
  /// @throws input_error, each line beginning with a field's path: a pattern matches nothing (with
  /// names that are near), or makes no difference; nothing is left to train
  void check() const;

private:
  const proto::Model& model_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> frozen_;
  bool trains_ = false;
  /// Of each pattern, whether it matched a parameter, or made an exception.
  std::vector<bool> freezes_;
  std::vector<bool> excepts_;
};

} // namespace troupe
