#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/graph/graph.hpp"
#include "kernels/plan/plan.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// The value of a placeholder in a run of a session: all its elements, row-major. The memory is
/// borrowed for the call.
template <class T>
struct session_feed {
  expression placeholder;
  std::span<const T> values;
  /// Used instead of `values` for int32 placeholders.
  std::span<const std::int32_t> integers;
  /// Used instead of `values` for sparse placeholders. `rows` is the number of rows.
  sparse_rows<T> sparse;
  std::size_t rows = 0;

  session_feed(expression x, std::span<const T> y) : placeholder(x), values(y) {}
  session_feed(expression x, std::span<const std::int32_t> y) : placeholder(x), integers(y) {}
  session_feed(expression x, const sparse_rows<T>& y, std::size_t n)
    : placeholder(x), sparse(y), rows(n) {}
};

/// Computes any part of a graph: `run(feeds, fetches)` evaluates the requested nodes (fetches) and
/// all nodes on which they depend. It is for experiments, tests and small programs. Training uses
/// plan and executor directly.
///
///     graph g;
///     auto x = g.placeholder("x", {shape::batch, 3});
///     auto y = dense_layer(x, "layer", 2, activation::tanh);
///     auto energy = sum(y * y);
///     auto slopes = gradients(energy, std::array{x});
///     graph_session<double> s(g);
///     auto values = s.run({{x, features}}, {y, slopes[0]}); // values[1]: d energy / d x
///
/// The first run of a list of fetches makes a plan for it. Later runs with the same list use this
/// plan and its memory. A new plan is made if a run has more samples than the plan allows, or if
/// the graph has new variables. The graph must outlive the session. Nodes and variables may be
/// added to the graph between runs. Each run has different dropout masks, which depend on the seed
/// of the session and on the number of the run. T: float or double. Only one thread at a time may
/// use a session.
///
/// A session of float can compute on a GPU. The results then equal the results of the CPU within
/// rounding. The variables stay in the host's memory, and each run copies them to the GPU. Each
/// list of fetches has its own memory on the GPU.
template <class T>
class graph_session {
public:
  /// A session on the CPU. Variables start with the values of their initializers.
  explicit graph_session(const graph& g, std::uint64_t seed = 1) : graph_(g), seed_(seed) {}

  /// A session on GPU number `index` of `gpus`. The first run opens the GPU.
  /// @throws device_error if `gpus` is null (the program has no code for GPUs)
  graph_session(const graph& g, std::shared_ptr<const gpu_set> gpus, std::size_t index,
                std::uint64_t seed = 1) requires std::same_as<T, float>
    : graph_(g), seed_(seed), gpus_(std::move(gpus)), index_(index) {
    require_gpus(gpus_.get());
  }

  /// The values of all variables, in the order of graph::parameters(). The caller may change them.
  /// Valid until variables are added to the graph.
  std::span<T> variables();
  /// The values of the variable with this name. Throws input_error if there is no such variable.
  std::span<T> variable(std::string_view name);

  /// Returns the values of the fetches, row-major. The feeds determine the number of samples. It is
  /// 1 if no feed has a batch.
  /// @throws input_error if a feed does not fit its placeholder or the other feeds, if a needed
  /// feed is missing, if a fetch is not part of the graph or does not consist of floating-point
  /// numbers, or if the tensors of the plan do not fit into memory; on a GPU, also device_error
  std::vector<std::vector<T>> run(std::span<const session_feed<T>> feeds,
                                  std::span<const expression> fetches);
  std::vector<std::vector<T>> run(std::initializer_list<session_feed<T>> feeds,
                                  std::initializer_list<expression> fetches) {
    return run(std::span{feeds.begin(), feeds.size()}, std::span{fetches.begin(), fetches.size()});
  }

  /// Number of plans so far. If the same fetches were planned again, each plan counts.
  std::size_t planned() const noexcept { return planned_; }

private:
  /// A session of float runs on any device, a session of double only on the CPU.
  using executor_type = std::conditional_t<std::is_same_v<T, float>, device_executor, executor<T>>;

  std::unique_ptr<executor_type> make_executor(plan_options options) const;
  executor_type& executor_for(std::span<const expression> fetches, std::size_t rows);
  std::size_t rows_of(std::span<const session_feed<T>> feeds) const;
  std::vector<feed<T>> feeds_for(const plan& what, std::span<const session_feed<T>> feeds) const;

  const graph& graph_;
  std::uint64_t seed_;
  /// Null if the session computes on the CPU.
  std::shared_ptr<const gpu_set> gpus_;
  std::size_t index_ = 0;
  std::vector<T> variables_;
  /// One executor per list of fetches. The key is the list of their ids.
  std::map<std::vector<std::uint32_t>, std::unique_ptr<executor_type>> executors_;
  std::size_t planned_ = 0;
  std::uint64_t runs_ = 0;
};

extern template class graph_session<float>;
extern template class graph_session<double>;

} // namespace troupe
