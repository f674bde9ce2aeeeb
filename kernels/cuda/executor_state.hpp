#pragma once

#include "kernels/cpu/executor_state.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gradient_norm.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/sparse_feed.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/cuda/table_rows.hpp"
#include "kernels/plan/widened.hpp"
#include "kernels/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// The state of the executor. This file is internal to the executor. operation_table.hpp defines how
// a GPU runs each instruction.

namespace troupe::cuda {

/// True if a GPU computes the instruction without converting its operands to float32
/// (kernels/plan/widened.hpp).
bool is_native(const instruction& x);

/// The positions of a run's scalar results in executor_state::scalars.
enum scalar_slot : std::size_t { loss_slot, correct_slot, counted_slot, scalar_slots };

/// Instructions that are submitted together, and the buckets (ranges of the gradient) that are
/// final after them. If the gradient is copied to the host, these buckets are copied while the next
/// segments run.
struct segment {
  range instructions;
  range buckets;
  /// `computed` is recorded after the instructions, and `copied` after the copies of the buckets.
  std::unique_ptr<event> computed;
  std::unique_ptr<event> copied;
};

/// The feeds of a batch, in device memory.
struct feed_set {
  /// Both vectors have a buffer for each placeholder. An int32 placeholder uses its buffer in
  /// `labels`, any other placeholder uses its buffer in `values`. All other buffers are empty. A
  /// placeholder that the plan does not read has no memory.
  std::vector<staged_buffer<float>> values;
  std::vector<staged_buffer<std::int32_t>> labels;
  /// The number of the announced batch (run_arguments::next) whose first `count` feeds are already
  /// copied to this set. 0 if there is no such batch. `rows` is the number of its samples.
  std::uint64_t batch = 0;
  std::size_t rows = 0;
  std::size_t count = 0;
  /// Recorded after the copies of these feeds.
  std::unique_ptr<event> copied;
};

struct executor_state {
  executor_state(device& where, std::shared_ptr<const plan> instructions, const gpu_options& how)
    : gpu(where), options(how), what(std::move(instructions)), code(*what, is_native) {}
  executor_state(const executor_state&) = delete;
  executor_state& operator=(const executor_state&) = delete;
  /// Waits for the copies of a run that did not end, because they use the pinned memory.
  ~executor_state();

  device& gpu;
  gpu_options options;
  std::shared_ptr<const plan> what;
  /// The instructions of the plan, with operands of float32 where a GPU needs them.
  widened_instructions code;
  cuda::stream stream = gpu.main_stream();
  /// Streams for copies to the host, and for copies of announced feeds to the device.
  cuda::stream copies = gpu.copy_stream();
  cuda::stream uploads = gpu.upload_stream();
  buffer<float> arena;
  staged_buffer<float> weights;  // in the order of the layout
  staged_buffer<float> gradient; // in the order of the layout; empty for a plan without gradients
  /// Two sets if batches may be announced: a run reads one set while the next batch is copied to
  /// the other set.
  std::vector<feed_set> feeds;
  /// The set that the current run reads.
  std::size_t current_feeds = 0;
  std::map<std::size_t, sparse_feed> sparse;
  table_rows tables{gpu, *what};
  /// Work space for one instruction.
  buffer<double> space;
  staged_buffer<double> scalars;
  /// For a gradient that stays on the device: its norm, and, with gpu_options::accumulates, the
  /// gradient of earlier runs.
  gradient_norm norm;
  buffer<float> earlier;
  /// For a gradient that stays on the device, if the plan has a loss scale: 1 / scale, and the
  /// ranges of the gradient that are multiplied by it.
  staged_buffer<float> unscale;
  std::vector<range> scaled;
  /// Sums of the current instruction over samples, for example for batch normalization: first over
  /// the samples of this worker, and after give_sums() over those of all workers.
  staged_buffer<double> totals;
  /// Keys of the dropout masks, in the order of their instructions.
  staged_buffer<std::uint64_t> keys;
  std::map<const instruction*, std::size_t> key_of;

  std::size_t rows = 0;
  /// True if the gradient of the current run stays on the device. The last work of the run is then
  /// to compute the norm of the gradient.
  bool stays = false;
  /// True if the current run adds its gradient to that of the previous run, which was copied to
  /// `earlier`.
  bool accumulates = false;
  /// True if the current run copies only the rows of tables in run_arguments::table_rows. Before
  /// its first instruction, these rows of the gradient are set to 0. Other rows are not defined.
  bool by_rows = false;
  /// The number of the last instruction that writes the loss; ~0 if no instruction writes it.
  std::size_t loss_instruction = ~std::size_t{0};
  /// The number of the current instruction.
  std::size_t current = 0;
  /// True if the current instruction has written the loss to loss_slot of `scalars` in double,
  /// before the loss was rounded to float32.
  bool exact_loss = false;
  /// The number of labels that are not ignored, if the host knows it without the device.
  std::optional<std::size_t> counted;
  /// The memory for the result of executor::fetched().
  buffer<float, memory_kind::pinned> fetched;

  /// The segments of runs whose gradient is copied to the host: a segment also ends where a bucket
  /// is final. Empty for a plan without gradients.
  std::vector<segment> by_bucket;
  /// The segments of other runs.
  std::vector<segment> joined;
  /// The segments of the current run.
  const std::vector<segment>& segments() const noexcept { return stays ? joined : by_bucket; }
  /// True from the first submission of a run until the host has waited for its end.
  bool in_flight = false;

  /// The progress of a run that has begun and has not ended.
  struct progress {
    /// The number of segments that were submitted, the number of segments whose buckets were passed
    /// to the caller, and the number of segments for which the host has waited.
    std::size_t submitted = 0;
    std::size_t delivered = 0;
    std::size_t ended = 0;
    /// About the next segment. `asked` is true if on_sums was called. `given` is true if
    /// give_sums() has supplied the sums.
    bool asked = false;
    bool given = false;
  };
  std::optional<progress> under_way;
  /// Number of samples of all workers, once it is known in a run.
  std::optional<std::size_t> all_rows;

  bool has_totals(const instruction& x) const { return x.key != 0 && all_rows.has_value(); }
  /// The number of samples over which an instruction computes its statistics. If the instruction
  /// needs sums over all workers (x.key is not 0), and the number of samples of all workers is
  /// known, it is that number. Otherwise, it is the number of samples of this worker.
  std::size_t rows_of(const instruction& x) const {
    return x.key != 0 ? all_rows.value_or(rows) : rows;
  }

  /// The recording of a segment, for fixed numbers of rows.
  struct recorded_segment {
    std::unique_ptr<recording> work;
    std::optional<std::size_t> counted;
    /// True if the segment has run before with this key of `recorded`. Its kernels are then loaded.
    bool loaded = false;
    /// How often recording has failed.
    std::size_t failures = 0;
  };
  /// The keys are `rows`, `all_rows`, `current_feeds`, `stays`, `accumulates` and `by_rows`. Each
  /// value has an element for each segment. The first run with a key sets `loaded`, the second one
  /// sets `work`. If recording fails, a later run sets `work`, or it stays null.
  std::map<std::tuple<std::size_t, std::optional<std::size_t>, std::size_t, bool, bool, bool>,
           std::vector<recorded_segment>>
    recorded;
  /// See executor::take_notice(). It is set at most once.
  std::string notice;
  bool noticed = false;

  const float* read(const operand& x) const;
  float* write(const operand& x) const;
  const std::int32_t* labels_of(const operand& x) const {
    return feeds[current_feeds].labels[x.index].data();
  }
  std::size_t elements(const operand& x) const { return x.shape.elements(rows); }
  /// True if the current instruction writes only the rows of this result that the batch selects.
  bool takes_rows_only(const operand& x) const {
    return by_rows && x.where == operand::place::gradient
      && std::ranges::any_of(what->row_sparse_gradients(), [&](const auto& table) {
             return what->parameters().entries()[table.parameter].offset == x.index;
           });
  }
  /// True if this result is the number of correct samples that plan_options::correct requested.
  bool counts(const operand& x) const {
    const auto& requested = what->correct();
    return requested.exists() && x.where == requested.where && x.index == requested.index;
  }
  std::size_t extent(const operand& x, std::size_t axis) const {
    return x.shape[axis] == shape::batch ? rows : static_cast<std::size_t>(x.shape[axis]);
  }
  /// Product of the extents of axes [first, last).
  std::size_t extents(const operand& x, std::size_t first, std::size_t last) const;
  troupe::extent matrix(const operand& x) const { return matrix_extent(x.shape, rows); }
  /// The destination of a scalar result of the current instruction.
  scalar_result scalar(const operand& out);
};

} // namespace troupe::cuda
