#pragma once

#include "actors/cluster/cluster_spec.hpp"
#include "messages/proto/wire.pb.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Observations of which process can reach which other process.
struct observations {
  /// The results of this process's attempts to connect, one for each process of the cluster.
  std::vector<proto::Reach> here;
  /// Answers of other nodes, by the index of their process in the cluster.
  std::map<std::size_t, proto::Probed> said;
  /// The reasons why other nodes gave no answer.
  std::map<std::size_t, std::string> silent;
  /// The process that runs on this host, if known.
  std::optional<std::size_t> self;
};

/// Tells whether process `from` can reach process `to`. Of two processes, only the one with the
/// lower task connects; from lowest to highest: evaluator, worker, ps, coordinator.
struct pair_finding {
  enum class state { reached, failed, unknown };

  std::size_t from = 0;
  std::size_t to = 0;
  state is = state::unknown;
  /// True if training needs this connection.
  bool needed = false;
  /// The IP address and port that were tried, such as "10.0.0.7:7000"; empty if none was tried.
  std::string resolved;
  /// The problem with the connection, or the reason why the result is unknown. Also set if process
  /// `to` can be reached, but its port for channels (the faster, second connections) cannot.
  std::string problem;
};

struct diagnosis {
  /// For each process of the cluster: which program answers at its address, as seen from this
  /// process.
  std::vector<std::string> processes;
  std::vector<pair_finding> pairs;
  /// Advice, one item per line.
  std::vector<std::string> advice;
  /// True if all pairs that training needs can connect.
  bool well = false;
};

/// True if training needs a connection between two processes. Each process needs one to the
/// coordinator. Workers need connections to the parameter servers. In a cluster without parameter
/// servers, workers need connections to their neighbours in the ring.
bool needs_connection(const cluster_spec& cluster, const cluster_process& a,
                      const cluster_process& b);

/// Combines the observations into findings and advice.
/// @param version version of this build; @param name the cluster's name in the advice.
diagnosis diagnose(const cluster_spec& cluster, const observations& x, const std::string& version,
                   const std::string& name);

} // namespace troupe
