#pragma once

#include "kernels/cpu/executor_state.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/reductions.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

// Internal to the executor; operation_table.hpp has its instructions.

namespace troupe::cuda {

/// Scalars of a run, in device memory.
enum scalar_slot : std::size_t { loss_slot, correct_slot, counted_slot, scalar_slots };

struct executor_state {
  executor_state(device& where, std::shared_ptr<const plan> instructions)
    : gpu(where), what(std::move(instructions)) {}

  device& gpu;
  std::shared_ptr<const plan> what;
  cuda::stream stream = gpu.main_stream();
  buffer<float> arena;
  buffer<float> weights;  // as the layout
  buffer<float> gradient; // as the layout; empty for a plan without gradients
  /// One for each placeholder; empty if the plan does not read it.
  std::vector<buffer<float>> values;
  std::vector<buffer<std::int32_t>> labels;
  /// Work space for one instruction.
  buffer<double> space;
  buffer<std::int32_t> positions;
  buffer<double> scalars;
  /// Keys of the dropout masks, in the order of their instructions.
  buffer<std::uint64_t> keys;
  std::map<const instruction*, std::size_t> key_of;

  std::size_t rows = 0;
  /// The last instruction that writes the loss; none if there is no loss.
  std::size_t loss_instruction = ~std::size_t{0};
  /// The current instruction.
  std::size_t current = 0;
  /// True if it wrote the loss to its slot, before the loss was rounded.
  bool exact_loss = false;
  /// The number of labels that count, if the host knows it.
  std::optional<std::size_t> counted;
  std::vector<float> fetched;

  /// The recorded instructions of a run, by its number of rows.
  struct recorded_run {
    std::unique_ptr<recording> work;
    std::optional<std::size_t> counted;
  };
  std::map<std::size_t, recorded_run> recorded;

  const float* read(const operand& x) const;
  float* write(const operand& x) const;
  const std::int32_t* labels_of(const operand& x) const { return labels[x.index].data(); }
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
