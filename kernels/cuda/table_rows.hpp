#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::cuda {

/// Copies elements [where.begin, where.end) of weight number `weight`, relative to its first
/// element, from the arguments of a run to `to`.
void copy_weight(const plan& what, const run_arguments<float>& from, std::size_t weight,
                 range where, float* to);

/// Copies only some rows of the tables of a plan (plan::row_sparse_gradients()) between host and
/// device, so the time of a copy does not depend on the size of a table. All rows of a run are
/// packed: they follow each other without gaps, and travel in one copy. A kernel moves them to
/// their places on the device, or collects them there.
///
/// The memory for packed rows (device memory, and as much pinned memory) is allocated when it is
/// needed. It grows to 1.5 times as much as the run needs, and at least to twice as much as before.
/// Its address is not in recordings, because launches of this class are never recorded.
class table_rows {
public:
  table_rows(device& where, const plan& what);

  /// Bytes of device memory for packed rows, if each sparse feed has this number of entries in a
  /// batch, and no id or column occurs twice in the batches of a step. They take as many bytes of
  /// pinned memory. The memory may become larger if numbers of rows differ from step to step.
  /// @param batches see run_arguments::table_rows: the rows of a step with several batches are
  /// copied together
  static std::size_t memory_bytes(const plan& what, std::size_t sparse_entries,
                                  std::size_t batches = 1) noexcept;

  /// True if copies of these rows (run_arguments::table_rows) take at most half of the bytes of
  /// the tables. Otherwise, whole tables are copied.
  bool is_worth_packing(const range_list& rows) const;

  /// Selects the rows of a run, and copies their positions to the device. No earlier copy may be
  /// running. Throws device_error if there is too little memory.
  void select(stream where, const range_list& rows);
  /// Copies the selected rows of the weights to `weights`, the flat vector on the device. Its other
  /// rows of tables keep their values.
  void send_weights(stream where, const run_arguments<float>& from, float* weights);
  /// Sets the selected rows of the flat gradient on the device to 0.
  void clear_gradient(stream where, float* gradient) const;
  /// Collects the selected rows of a bucket of the flat gradient on the device.
  void pack_gradient(stream where, std::size_t bucket, const float* gradient) const;
  /// Copies the collected rows of a bucket to pinned memory.
  void fetch_gradient(stream where, std::size_t bucket) const;
  /// Copies these rows from pinned memory to their places in the caller's flat gradient.
  void write_gradient(std::size_t bucket, std::span<float> gradient) const;

  /// True if this parameter (its position in the layout) is a table.
  bool is_table(std::size_t parameter) const noexcept { return is_table_[parameter]; }
  /// The parts of a bucket that do not belong to a table.
  const range_list& outside(std::size_t bucket) const noexcept { return outside_[bucket]; }

private:
  /// The selected rows in a bucket.
  struct section {
    /// Their positions in rows_.
    range rows;
    /// Their elements in packed_.
    range packed;
    /// The first of their positions in positions_.
    std::size_t first = 0;
  };

  packed_ranges ranges_of(const section& x) const;

  device* gpu_;
  const plan* what_;
  range_list tables_;
  std::vector<bool> is_table_;
  std::vector<range_list> outside_;
  /// The selected rows. Neighbouring rows are one range. A range has rows of only one table.
  range_list rows_;
  /// One section per bucket. In packed_, sections follow each other in the order of the buckets.
  std::vector<section> sections_;
  /// For each section: packed_ranges::begins, and then packed_ranges::firsts, relative to the
  /// section.
  staged_buffer<std::uint32_t> positions_;
  /// First the weights, and at the end of the run the gradient.
  staged_buffer<float> packed_;
};

} // namespace troupe::cuda
