#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// `troupe node`: one task of a cluster, in this process.
struct node_command {
  std::string role;
  std::uint32_t task = 0;
  std::string cluster;
  std::string job;
  std::string out;
  std::vector<std::string> overrides;
  std::string log_level;
  bool insecure = false;
  /// The process that this one is not to outlive; 0 for none.
  int parent = 0;
};

/// `troupe train`: a whole cluster on this host.
struct train_command {
  std::string job;
  std::uint32_t workers = 1;
  std::optional<std::uint32_t> ps;
  std::string protocol;
  bool processes = false;
  std::string out;
  std::string log_level;
  std::vector<std::string> overrides;
};

/// `troupe check`: what a job would do, without doing it.
struct check_command {
  std::string job;
  std::string cluster;
  std::uint32_t workers = 1;
  std::optional<std::uint32_t> ps;
  bool processes = false;
  std::string protocol;
  std::vector<std::string> overrides;
};

/// `troupe predict`: what trained weights say of the test data.
struct predict_command {
  std::string weights;
  std::string job;
  /// Where the predictions go as CSV; "-": standard output; empty: nowhere.
  std::string predictions;
  /// Test images to be drawn.
  std::uint32_t show = 0;
  std::vector<std::string> overrides;
};

/// All return an exit code, and throw input_error.
int run(const node_command& x);
int run(const train_command& x);
int run(const check_command& x);
int run(const predict_command& x);

} // namespace troupe
