#include "kernels/cuda/executor_feeds.hpp"

#include "kernels/cuda/executor_state.hpp"

#include <algorithm>
#include <cstddef>

namespace troupe::cuda {

namespace {

/// True if the plan reads this sparse feed column by column.
bool reads_columns(const plan& what, std::size_t feed) {
  return std::ranges::any_of(what.instructions(), [&](const instruction& x) {
    return x.op == operation::sparse_matmul_gradient && x.inputs[0].index == feed;
  });
}

/// The number of sets of feeds. Only training announces batches, which need a second set.
std::size_t feed_sets_of(const plan& what) {
  return what.has_gradients() ? 2 : 1;
}

bool is_dense_feed(const plan& what, std::size_t i) {
  return what.reads_feed(i) && what.feed(i).type != dtype::sparse;
}

/// Allocates a set of the dense feeds that the plan reads, each for max_rows samples.
feed_set make_feed_set(device& gpu, const plan& what) {
  feed_set result;
  result.values.resize(what.feed_count());
  result.labels.resize(what.feed_count());
  result.copied = gpu.make_event();
  for (std::size_t i = 0; i < what.feed_count(); ++i) {
    if (!is_dense_feed(what, i))
      continue;
    const auto n = what.feed(i).shape.elements(what.max_rows());
    if (what.feed(i).type == dtype::int32)
      result.labels[i] = {gpu, n};
    else
      result.values[i] = {gpu, n};
  }
  return result;
}

void copy_feed(const plan& what, const feed_set& to, stream where, std::size_t i,
               const feed<float>& from, std::size_t rows) {
  const auto n = what.feed(i).shape.elements(rows);
  if (what.feed(i).type == dtype::int32)
    to.labels[i].send_feed(where, {from.labels, n});
  else
    to.values[i].send_feed(where, {from.values, n});
}

/// If the batch of this run was announced, selects the feed_set to which its feeds were copied, and
/// returns the number of these feeds. Otherwise, returns 0.
std::size_t take_announced(executor_state& s, const run_arguments<float>& arguments) {
  for (std::size_t i = 0; i < s.feeds.size(); ++i) {
    auto& x = s.feeds[i];
    if (x.batch == 0)
      continue;
    if (x.batch != arguments.batch || x.rows != arguments.rows) {
      // This announced batch does not run now. The caller may change its feeds after this run, so
      // the work of this run begins after their copies.
      x.copied->hold(s.stream);
      continue;
    }
    s.current_feeds = i;
    x.batch = 0;
    x.copied->hold(s.stream);
    return x.count;
  }
  return 0;
}

} // namespace

void allocate_feeds(executor_state& s) {
  const auto& what = *s.what;
  for (std::size_t i = 0; i < feed_sets_of(what); ++i)
    s.feeds.push_back(make_feed_set(s.gpu, what));
  for (std::size_t i = 0; i < what.feed_count(); ++i)
    if (what.reads_feed(i) && what.feed(i).type == dtype::sparse) {
      const auto features = static_cast<std::size_t>(what.feed(i).shape.last());
      s.sparse.emplace(i, sparse_feed{s.gpu, what.max_rows(), features, reads_columns(what, i)});
    }
}

void copy_feeds(executor_state& s, const run_arguments<float>& arguments) {
  const auto copied = take_announced(s, arguments);
  for (std::size_t i = 0; i < s.what->feed_count(); ++i) {
    if (!s.what->reads_feed(i))
      continue;
    const auto& from = arguments.feeds[i];
    if (const auto found = s.sparse.find(i); found != s.sparse.end()) {
      if (found->second.copy(s.stream, from.sparse, s.rows))
        s.recorded.clear(); // the recordings contain the old addresses
    } else if (i >= copied) {
      copy_feed(*s.what, s.feeds[s.current_feeds], s.stream, i, from, s.rows);
    }
  }
}

void copy_announced(executor_state& s, const announced_feeds<float>& next) {
  if (next.batch == 0 || s.feeds.size() < 2 || next.rows > s.what->max_rows())
    return;
  auto& to = s.feeds[1 - s.current_feeds];
  if (to.batch == next.batch)
    return;
  // An announced batch that did not run: its copies may still read the pinned memory.
  if (to.batch != 0)
    to.copied->wait();
  to.batch = 0;
  to.rows = next.rows;
  to.count = std::min(next.feeds.size(), s.what->feed_count());
  for (std::size_t i = 0; i < to.count; ++i)
    if (is_dense_feed(*s.what, i))
      copy_feed(*s.what, to, s.uploads, i, next.feeds[i], next.rows);
  to.copied->record(s.uploads);
  to.batch = next.batch;
}

std::size_t feed_bytes(const plan& what, std::size_t sparse_entries) {
  std::size_t floats = 0;
  std::size_t sparse = 0;
  for (std::size_t i = 0; i < what.feed_count(); ++i)
    if (is_dense_feed(what, i)) // labels have the size of floats
      floats += feed_sets_of(what) * what.feed(i).shape.elements(what.max_rows());
    else if (what.reads_feed(i))
      sparse += sparse_feed::memory_bytes(what.max_rows())
        + (sparse_entries > 0 ? sparse_feed::entry_bytes(sparse_entries, reads_columns(what, i))
                              : 0);
  return floats * sizeof(float) + sparse;
}

} // namespace troupe::cuda
