#pragma once

#include "actors/cluster/cluster_spec.hpp"
#include "messages/proto/wire.pb.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Observations of which process reaches which.
struct observations {
  /// One per process of the cluster: the result of an attempt to connect to it from here.
  std::vector<proto::Reach> here;
  /// Answers of other nodes, by the position of their process.
  std::map<std::size_t, proto::Probed> said;
  /// The reasons why other nodes gave no answer.
  std::map<std::size_t, std::string> silent;
  /// The process that runs on this host, if known.
  std::optional<std::size_t> self;
};

/// Whether the lower of two processes can reach the higher one, which is how they connect.
struct pair_finding {
  enum class state { reached, failed, unknown };

  std::size_t from = 0;
  std::size_t to = 0;
  state is = state::unknown;
  /// Training needs this connection.
  bool needed = false;
  /// For example "10.0.0.7:7000"; empty if not tried.
  std::string resolved;
  /// The problem, or the reason why the result is unknown. If the process can be reached, but not
  /// at its port for second connections: that.
  std::string problem;
};

struct diagnosis {
  /// One per process: the program that answers there, as seen from here.
  std::vector<std::string> processes;
  std::vector<pair_finding> pairs;
  /// Advice, one item per line.
  std::vector<std::string> advice;
  /// True if all pairs that training needs can connect.
  bool well = false;
};

/// True if training needs a connection between two processes: each process with the coordinator;
/// workers with parameter servers or, in a cluster without any, with their neighbours in the ring.
bool needs_connection(const cluster_spec& cluster, const cluster_process& a,
                      const cluster_process& b);

/// Combines the observations.
/// @param version version of this build; @param name the cluster's name in the advice.
diagnosis diagnose(const cluster_spec& cluster, const observations& x, const std::string& version,
                   const std::string& name);

} // namespace troupe
