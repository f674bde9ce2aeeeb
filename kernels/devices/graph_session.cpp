#include "kernels/devices/graph_session.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace troupe {

template <class T>
std::span<T> graph_session<T>::variables() {
  const auto& parameters = graph_.parameters();
  const auto old = variables_.size();
  if (old == parameters.size())
    return variables_;
  std::vector<float> added(parameters.size() - old);
  initialize(parameters, {old, parameters.size()}, seed_, added);
  variables_.insert(variables_.end(), added.begin(), added.end());
  return variables_;
}

template <class T>
std::span<T> graph_session<T>::variable(std::string_view name) {
  const auto* entry = graph_.parameters().find(name);
  if (entry == nullptr)
    throw input_error("the graph has no variable named \"" + std::string{name} + "\"");
  return variables().subspan(entry->offset, entry->size);
}

template <class T>
std::size_t graph_session<T>::rows_of(std::span<const session_feed<T>> feeds) const {
  std::optional<std::size_t> rows;
  for (const auto& x : feeds) {
    if (!x.placeholder.valid() || &x.placeholder.owner() != &graph_
        || x.placeholder.node().op != operation::placeholder)
      throw input_error("a feed is not for a placeholder of this graph");
    const auto& n = x.placeholder.node();
    const bool sparse = n.type == dtype::sparse;
    if (sparse != (x.sparse.starts != nullptr))
      throw input_error("\"" + n.name + "\" " + to_string(n.shape)
                        + (sparse ? " is sparse; feed it with sparse_rows"
                                  : " is not sparse, but was fed with sparse_rows"));
    const auto given = sparse  ? x.rows
      : n.type == dtype::int32 ? x.integers.size()
                               : x.values.size();
    const auto each = sparse ? 1 : n.shape.elements(1);
    const auto refuse = [&](const std::string& expected) {
      throw input_error("\"" + n.name + "\" " + to_string(n.shape) + " was fed with "
                        + std::to_string(given) + " elements of type "
                        + (n.type == dtype::int32 ? "int32" : "float") + "; " + expected);
    };
    if (!n.shape.has_batch() && given != each)
      refuse("expected " + std::to_string(each));
    if (!n.shape.has_batch() || each == 0)
      continue;
    if (given % each != 0)
      refuse("expected a multiple of " + std::to_string(each));
    if (rows && *rows != given / each)
      refuse("another feed has " + std::to_string(*rows) + " samples");
    rows = given / each;
  }
  return rows.value_or(1);
}

template <class T>
auto graph_session<T>::make_executor(plan_options options) const -> std::unique_ptr<executor_type> {
  const auto on_cpu = std::make_shared<const plan>(graph_, options);
  if constexpr (std::is_same_v<T, float>) {
    if (gpus_ == nullptr)
      return make_cpu_executor(on_cpu, 1);
    options.fusion = &gpus_->fusion();
    return gpus_->make_executor(index_, std::make_shared<const plan>(graph_, options), on_cpu);
  } else {
    return std::make_unique<executor_type>(on_cpu);
  }
}

template <class T>
auto graph_session<T>::executor_for(std::span<const expression> fetches, std::size_t rows)
  -> executor_type& {
  std::vector<std::uint32_t> key;
  for (const auto x : fetches) {
    if (!x.valid() || &x.owner() != &graph_)
      throw input_error("a fetch does not belong to this graph");
    key.push_back(x.id());
  }
  const auto found = executors_.find(key);
  // A plan can be used again only if no variables were added to the graph since it was made.
  if (found != executors_.end() && found->second->what().max_rows() >= rows
      && found->second->what().parameters().size() == variables_.size())
    return *found->second;
  auto options = cpu_plan_options();
  options.max_rows = std::bit_ceil(std::max<std::size_t>(rows, 1));
  options.fetches.assign(fetches.begin(), fetches.end());
  auto made = make_executor(options);
  ++planned_;
  return *executors_.insert_or_assign(std::move(key), std::move(made)).first->second;
}

template <class T>
std::vector<feed<T>> graph_session<T>::feeds_for(const plan& what,
                                                 std::span<const session_feed<T>> feeds) const {
  std::vector<feed<T>> result(what.feed_count());
  std::vector<bool> fed(what.feed_count());
  for (const auto& x : feeds) {
    const auto& n = x.placeholder.node();
    if (n.index >= result.size())
      continue; // The placeholder is newer than the plan, so the plan does not read it.
    // The executor refuses null pointers. A feed without elements therefore points to one of these
    // constants, which are never read.
    static constexpr T nothing{};
    static constexpr std::int32_t no_integer{};
    if (n.type == dtype::sparse)
      result[n.index] = x.sparse;
    else if (n.type == dtype::int32)
      result[n.index] = x.integers.empty() ? &no_integer : x.integers.data();
    else
      result[n.index] = x.values.empty() ? &nothing : x.values.data();
    fed[n.index] = true;
  }
  for (std::size_t i = 0; i < result.size(); ++i)
    if (what.reads_feed(i) && !fed[i])
      throw input_error("the fetches depend on \"" + what.feed(i).name + "\", which was not fed");
  return result;
}

template <class T>
std::vector<std::vector<T>> graph_session<T>::run(std::span<const session_feed<T>> feeds,
                                                  std::span<const expression> fetches) {
  const auto all = variables();
  const auto rows = rows_of(feeds);
  auto& machine = executor_for(fetches, rows);
  const auto values = feeds_for(machine.what(), feeds);
  std::vector<const T*> weights;
  for (const auto& entry : machine.what().parameters().entries())
    weights.push_back(all.data() + entry.offset);
  run_arguments<T> arguments;
  arguments.rows = rows;
  arguments.weights = weights;
  arguments.feeds = values;
  arguments.seed = stream_key(seed_, {runs_++});
  machine.restart(); // abandons a previous run that failed
  machine.advance(arguments).value();
  std::vector<std::vector<T>> result;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const auto values_of = machine.fetched(i);
    result.emplace_back(values_of.begin(), values_of.end());
  }
  return result;
}

template class graph_session<float>;
template class graph_session<double>;

} // namespace troupe
