#pragma once

#include "kernels/cpu/executor_state.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gradient_norm.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/sparse_feed.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/plan/widened.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

// Internal to the executor; operation_table.hpp has its instructions.

namespace troupe::cuda {

/// True if a GPU computes the instruction without conversions of its operands
/// (kernels/plan/widened.hpp).
bool is_native(const instruction& x);

/// Scalars of a run, in device memory.
enum scalar_slot : std::size_t { loss_slot, correct_slot, counted_slot, scalar_slots };

/// Instructions that are submitted at once, and the buckets that are final after them. Their copies
/// to the host run beside the next segments.
struct segment {
  range instructions;
  range buckets;
  /// The end of the instructions, and of the copies.
  std::unique_ptr<event> computed;
  std::unique_ptr<event> copied;
};

/// The feeds of a batch, in device memory.
struct feed_set {
  /// One for each placeholder; empty if the plan does not read it.
  std::vector<staged_buffer<float>> values;
  std::vector<staged_buffer<std::int32_t>> labels;
  /// The announced batch whose first `count` feeds are copied; 0 if there is none.
  std::uint64_t batch = 0;
  std::size_t rows = 0;
  std::size_t count = 0;
  /// The end of their copies.
  std::unique_ptr<event> copied;
};

struct executor_state {
  executor_state(device& where, std::shared_ptr<const plan> instructions, const gpu_options& how)
    : gpu(where), options(how), what(std::move(instructions)), code(*what, is_native) {}
  executor_state(const executor_state&) = delete;
  executor_state& operator=(const executor_state&) = delete;
  /// Waits for a run that did not end, because its copies use pinned memory.
  ~executor_state();

  device& gpu;
  gpu_options options;
  std::shared_ptr<const plan> what;
  /// The instructions that run.
  widened_instructions code;
  cuda::stream stream = gpu.main_stream();
  /// For copies to the host, and for those of announced feeds to the device.
  cuda::stream copies = gpu.copy_stream();
  cuda::stream uploads = gpu.upload_stream();
  buffer<float> arena;
  staged_buffer<float> weights;  // as the layout
  staged_buffer<float> gradient; // as the layout; empty for a plan without gradients
  /// Two if batches may be announced: one is read, the other is filled.
  std::vector<feed_set> feeds;
  /// The set that the current run reads.
  std::size_t current_feeds = 0;
  std::map<std::size_t, sparse_feed> sparse;
  /// Work space for one instruction.
  buffer<double> space;
  staged_buffer<double> scalars;
  /// For a gradient that stays here: the parts of its norm, and their sums of squares.
  std::vector<norm_part> norm_parts = norm_parts_of(*what);
  staged_buffer<double> squares;
  /// Sums of the current instruction over the samples of this worker or of all workers.
  staged_buffer<double> totals;
  /// Keys of the dropout masks, in the order of their instructions.
  staged_buffer<std::uint64_t> keys;
  std::map<const instruction*, std::size_t> key_of;

  std::size_t rows = 0;
  /// True if the gradient of the run stays here, and the run ends with its norm.
  bool stays = false;
  /// The last instruction that writes the loss; none if there is no loss.
  std::size_t loss_instruction = ~std::size_t{0};
  /// The current instruction.
  std::size_t current = 0;
  /// True if it wrote the loss to its slot, before the loss was rounded.
  bool exact_loss = false;
  /// The number of labels that count, if the host knows it.
  std::optional<std::size_t> counted;
  /// The values of the last fetch.
  buffer<float, memory_kind::pinned> fetched;

  std::vector<segment> segments;
  /// True from the first submission of a run until the host has waited for its end.
  bool in_flight = false;

  /// A run that was begun and has not ended.
  struct progress {
    /// Number of segments that are submitted, and whose buckets were passed on.
    std::size_t submitted = 0;
    std::size_t delivered = 0;
    /// Whether on_sums was called for the next segment, and whether give_sums has answered.
    bool asked = false;
    bool given = false;
  };
  std::optional<progress> under_way;
  /// Number of samples of all workers, once it is known in a run.
  std::optional<std::size_t> all_rows;

  bool has_totals(const instruction& x) const { return x.key != 0 && all_rows.has_value(); }
  /// Number of samples that an instruction works on: all workers' or this one's.
  std::size_t rows_of(const instruction& x) const {
    return x.key != 0 ? all_rows.value_or(rows) : rows;
  }

  /// A segment with fixed numbers of rows.
  struct recorded_segment {
    std::unique_ptr<recording> work;
    std::optional<std::size_t> counted;
    /// True if it has run before, so that its kernels are loaded.
    bool loaded = false;
  };
  /// By `rows`, `all_rows`, `current_feeds` and `stays`, one per segment; without work until the
  /// second run.
  std::map<std::tuple<std::size_t, std::optional<std::size_t>, std::size_t, bool>,
           std::vector<recorded_segment>>
    recorded;

  const float* read(const operand& x) const;
  float* write(const operand& x) const;
  const std::int32_t* labels_of(const operand& x) const {
    return feeds[current_feeds].labels[x.index].data();
  }
  std::size_t elements(const operand& x) const { return x.shape.elements(rows); }
  std::size_t extent(const operand& x, std::size_t axis) const {
    return x.shape[axis] == shape::batch ? rows : static_cast<std::size_t>(x.shape[axis]);
  }
  /// Product of the extents of axes [first, last).
  std::size_t extents(const operand& x, std::size_t first, std::size_t last) const;
  troupe::extent matrix(const operand& x) const { return matrix_extent(x.shape, rows); }
  /// The destination of a scalar of the current instruction.
  scalar_result scalar(const operand& out);
};

} // namespace troupe::cuda
