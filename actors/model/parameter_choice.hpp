#pragma once

#include "kernels/graph/layout.hpp"
#include "messages/proto/job.pb.h"

#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Decides which parameters of a model are frozen, by `model.freeze` and `model.train`. It is used
/// while the model is built, and keeps a reference to `model`.
class parameter_choice {
public:
  explicit parameter_choice(const proto::Model& model);

  /// The kind of a parameter: frozen, or `usual`. Call it once for each parameter.
  /// @param stays the reason why the parameter is frozen by default; empty if it is trained by
  /// default
  parameter_kind kind_of(const std::string& name, parameter_kind usual,
                         const std::string& stays = {});

  /// The frozen parameters and the reasons, for people.
  const std::map<std::string, std::string>& frozen() const noexcept { return frozen_; }

  /// Checks the patterns. Call it after all parameters.
  /// @throws input_error if a pattern matches nothing (similar names are suggested) or has no
  /// effect, or if no parameter is left to train. Each line of the error begins with a field's
  /// path.
  void check() const;

private:
  const proto::Model& model_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> frozen_;
  bool trains_ = false;
  /// For each pattern of model.freeze: true if it matched a parameter. For each pattern of
  /// model.train: true if a parameter is trained because of it.
  std::vector<bool> freezes_;
  std::vector<bool> excepts_;
};

} // namespace troupe
