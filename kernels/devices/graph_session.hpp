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

/// The value of a placeholder in a run of a session: all its elements, row-major. Borrowed for the
/// call.
template <class T>
struct session_feed {
  expression placeholder;
  std::span<const T> values;
  /// Used instead of `values` for int32 placeholders.
  std::span<const std::int32_t> integers;
  /// Used instead of `values` for sparse placeholders, with the number of rows.
  sparse_rows<T> sparse;
  std::size_t rows = 0;

  session_feed(expression x, std::span<const T> y) : placeholder(x), values(y) {}
  session_feed(expression x, std::span<const std::int32_t> y) : placeholder(x), integers(y) {}
  session_feed(expression x, const sparse_rows<T>& y, std::size_t n)
    : placeholder(x), sparse(y), rows(n) {}
};

/// Computes any part of a graph: `run(feeds, fetches)` evaluates the requested nodes and all nodes
/// that they depend on. For exploring, testing and small programs. Training uses plan and executor
/// directly.
///
///     graph g;
///     auto x = g.placeholder("x", {shape::batch, 3});
///     auto y = dense_layer(x, "layer", 2, activation::tanh);
///     auto energy = sum(y * y);
///     auto slopes = gradients(energy, std::array{x});
///     graph_session<double> s(g);
///     auto values = s.run({{x, features}}, {y, slopes[0]}); // values[1]: d energy / d x
///
/// Each set of fetches is planned once. The plan and its memory are kept until a run has more
/// samples than earlier ones. The graph must outlive the session; nodes and variables may be added
/// to it at any time. Each run has different dropout masks, which depend on the session's seed and
/// the number of the run. T: float or double. One thread at a time.
///
/// A session of float can compute on a GPU. Its results equal those of the CPU within rounding. The
/// variables stay in the host's memory, and each run copies them to the GPU. Each set of fetches
/// has its own memory there.
template <class T>
class graph_session {
public:
  /// On the CPU. Variables start with the values of their initializers.
  explicit graph_session(const graph& g, std::uint64_t seed = 1) : graph_(g), seed_(seed) {}

  /// On a GPU, by its number in `gpus`. The first run opens it.
  /// @throws device_error if `gpus` is null (the program has no code for GPUs)
  graph_session(const graph& g, std::shared_ptr<const gpu_set> gpus, std::size_t index,
                std::uint64_t seed = 1) requires std::same_as<T, float>
    : graph_(g), seed_(seed), gpus_(std::move(gpus)), index_(index) {
    require_gpus(gpus_.get());
  }

  /// All variables, in the order of graph::parameters(). They may be written. Valid until variables
  /// are added to the graph.
  std::span<T> variables();
  /// The variable with this name. Throws input_error if there is none.
  std::span<T> variable(std::string_view name);

  /// Returns the values of the fetches, row-major. The feeds determine the number of samples; it is
  /// 1 if no feed has a batch.
  /// @throws input_error if a feed does not fit its placeholder or the other feeds, if a needed
  /// feed is missing, if a fetch is not part of the graph or not of floating-point numbers, or if
  /// its tensors do not fit into memory; on a GPU, also device_error
  std::vector<std::vector<T>> run(std::span<const session_feed<T>> feeds,
                                  std::span<const expression> fetches);
  std::vector<std::vector<T>> run(std::initializer_list<session_feed<T>> feeds,
                                  std::initializer_list<expression> fetches) {
    return run(std::span{feeds.begin(), feeds.size()}, std::span{fetches.begin(), fetches.size()});
  }

  /// Number of plans so far, including repeated ones for more samples.
  std::size_t planned() const noexcept { return planned_; }

private:
  /// GPUs compute in float only.
  using executor_type = std::conditional_t<std::is_same_v<T, float>, device_executor, executor<T>>;

  std::unique_ptr<executor_type> make_executor(plan_options options) const;
  executor_type& executor_for(std::span<const expression> fetches, std::size_t rows);
  std::size_t rows_of(std::span<const session_feed<T>> feeds) const;
  std::vector<feed<T>> feeds_for(const plan& what, std::span<const session_feed<T>> feeds) const;

  const graph& graph_;
  std::uint64_t seed_;
  /// Null: on the CPU.
  std::shared_ptr<const gpu_set> gpus_;
  std::size_t index_ = 0;
  std::vector<T> variables_;
  /// By the ids of the fetches.
  std::map<std::vector<std::uint32_t>, std::unique_ptr<executor_type>> executors_;
  std::size_t planned_ = 0;
  std::uint64_t runs_ = 0;
};

extern template class graph_session<float>;
extern template class graph_session<double>;

} // namespace troupe
