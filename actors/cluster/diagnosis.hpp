#pragma once

#include "actors/cluster/cluster_spec.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What is known of who reaches whom.
struct observations {
  /// One per process of the cluster: what came of connecting to it from here.
  std::vector<proto::Reach> here;
  /// What the nodes said that were asked, by the position of their process.
  std::map<std::size_t, proto::Probed> said;
  /// Why others could not be asked.
  std::map<std::size_t, std::string> silent;
  /// The process whose host this is, if that is known.
  std::optional<std::size_t> self;
};

/// Whether the lower of two processes reaches the higher, which is how they connect.
struct pair_finding {
  enum class state { reached, failed, unknown };

  std::size_t from = 0;
  std::size_t to = 0;
  state is = state::unknown;
  /// Training cannot do without.
  bool needed = false;
  /// "10.0.0.7:7000"; empty where nobody has looked.
  std::string resolved;
  /// What is wrong, or why that is unknown.
  std::string problem;
};

struct diagnosis {
  /// One per process: what answers there, as seen from here.
  std::vector<std::string> processes;
  std::vector<pair_finding> pairs;
  /// What to do, one piece of advice per line.
  std::vector<std::string> advice;
  /// Every pair that training needs is reached.
  bool well = false;
};

/// Whether training needs a connection between two processes: everybody with the coordinator;
/// workers with parameter servers or, in a cluster without any, with their neighbours in the ring.
bool needs_connection(const cluster_spec& cluster, const cluster_process& a,
                      const cluster_process& b);

/// Puts together what is known.
/// @param version of this build; @param name what the advice calls the cluster.
diagnosis diagnose(const cluster_spec& cluster, const observations& x, const std::string& version,
                   const std::string& name);

} // namespace troupe
