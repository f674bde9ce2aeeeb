#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/cuda/ring_sum.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/devices/device_replica.hpp"
#include "kernels/devices/device_updater.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::cuda {

/// Holds the weights of a range of parameters, the gradient of an update, and the optimizer's state
/// in device memory. Each update copies the gradient to the device and the new weights to the host.
/// If the caller holds the first moment (updater_sizes::moment_apart), each update copies the
/// moment in both directions.
///
/// An update runs in pieces. While the results of one piece are copied to the host on a second
/// stream, the next piece is copied to the device and updated. The host waits once for each piece.
/// A staged update reads the old state and writes the new one to other memory.
///
/// If only few elements change (range_update::only), apply() copies only these: their gradients to
/// the device, and their new weights to the host. On the device, they are packed into vectors
/// without gaps, updated there, and copied back. If there are too many elements or ranges for this,
/// apply() updates all elements.
///
/// The updater of a replica (device_replica) copies only the gradient, or nothing, and the host
/// does not wait for its updates. If it copies nothing, an update has only one piece.
class updater final : public device_updater {
public:
  static constexpr std::size_t default_piece = std::size_t{1} << 20;

  /// Allocates device memory, and pinned memory of the host for a gradient (and a moment). Throws
  /// device_error if there is too little.
  /// @param piece approximate number of elements of a piece; for a rule that needs whole tensors,
  /// there is only one piece
  updater(std::shared_ptr<device> where, const updater_sizes& sizes,
          std::size_t piece = default_piece);
  /// Makes an updater of this replica. The first parameter of the updater has number `begin`. The
  /// updater supports stage(), but not apply().
  /// @param seat the place of the replica in its ring; used only if updater_sizes::in_ring
  updater(std::shared_ptr<replica_memory> replica, std::size_t begin, const updater_sizes& sizes,
          std::size_t piece = default_piece, ring_seat seat = {});
  /// Waits for all submitted work, because copies use the pinned memory. Some work may still run
  /// after a failed update, or in a replica.
  ~updater() override;

  /// Bytes of device memory that an updater of these sizes allocates. This includes the largest
  /// memory for positions of few elements, which is allocated only when an update needs it.
  /// @param staged true if reserve_stage() or stage() is called
  static std::size_t memory_bytes(const updater_sizes& sizes, bool staged);
  /// Bytes of pinned memory that an updater of these sizes allocates, like memory_bytes().
  static std::size_t pinned_bytes(const updater_sizes& sizes);

  void apply(const range_update& x) override;
  void stage(const range_update& x) override;
  /// Makes the updates of several updaters of one replica, whose gradients are on the device. A
  /// launch updates many ranges.
  static void stage_all(std::span<const device_replica::staged_update> all);
  void publish() noexcept override;
  void reserve_stage() override;
  void forget_weights() noexcept override { weights_are_ = nullptr; }
  std::span<const float> state(std::size_t slot) override;
  void restore(std::size_t slot, std::span<const float> values) override;
  void read_weights(std::span<float> out) override { read(weights_.data(), out); }
  void write_weights(std::span<const float> values) override;
  void add_up() override { sum_->add_up(); }
  void gather() override { sum_->gather(); }
  double squared_norm_of_sum() override { return sum_->squared_norm(); }
  void clear_gradient() override { sum_->clear_gradient(); }

private:
  struct piece {
    range where;
    /// `computed` is recorded after the update of the piece, and `copied` after its copies to the
    /// host.
    std::unique_ptr<event> computed;
    std::unique_ptr<event> copied;
    /// Only in a replica: true if a copy of the gradient to the device may still be running.
    /// `copied` is then recorded after this copy.
    bool arriving = false;
  };

  /// Updates that are submitted together.
  struct update_list {
    std::vector<range_step> trainable;
    std::vector<statistics_step> statistics;

    void submit(stream where) const;
  };
  /// The device memory that an update reads and writes. Slots of the state begin `stride` elements
  /// after each other.
  struct update_memory {
    const float* weights = nullptr;
    const float* gradient = nullptr;
    const float* old_state = nullptr;
    float* state = nullptr;
    float* updated = nullptr;
    std::size_t stride = 0;
  };

  void bind_weights(const range_update& x);
  void prepare_stage(const range_update& x);
  update_memory in_place() const;
  update_memory to_stage() const;
  void update_all(const range_update& x, const update_memory& memory);
  bool is_worth_packing(const range_list& only) const;
  packed_ranges send_ranges(const range_list& only);
  void update_some(const range_update& x);
  void copy_in(const range_update& x, const piece& part);
  void collect(const range_update& x, range piece, const update_memory& memory, update_list& to);
  void copy_out(const piece& part, const float* updated);
  void deliver(const range_update& x);
  void update_replica(const range_update& x);
  void read(const float* from, std::span<float> to);

  std::shared_ptr<device> gpu_;
  /// Null if the updater belongs to no replica. In a replica, begin_ is the first parameter of the
  /// updater, and part_ is the position of the updater in replica_memory::parts.
  std::shared_ptr<replica_memory> replica_;
  std::size_t begin_ = 0;
  std::size_t part_ = 0;
  /// Present only if the gradients are added up in a ring (updater_sizes::in_ring).
  std::optional<ring_sum> sum_;
  updater_sizes sizes_;
  /// Empty if no update copies anything between device and host.
  std::vector<piece> pieces_;
  buffer<float> weights_;
  /// Its pinned memory also receives the new weights.
  staged_buffer<float> gradient_;
  buffer<float> state_; // (slots, elements)
  staged_buffer<float> moment_;
  /// packed_ranges::begins and packed_ranges::firsts of an update of few elements. Grows up to a
  /// size that memory_bytes() contains.
  staged_buffer<std::uint32_t> ranges_;
  buffer<float> staged_weights_;
  buffer<float> staged_state_; // (slots, elements)
  /// True if staged_weights_ has the frozen weights, and staged_state_ has the state of all
  /// parameters that are not trainable. No update changes these values.
  bool follows_ = false;
  /// Work space of rules that need whole tensors.
  buffer<double> space_;
  /// weights_are_ is host memory with the same values as weights_. staged_are_ is host memory with
  /// the same values as staged_weights_. Null if there is no such memory. If an update reads its
  /// weights from this memory, they need not be copied to the device.
  const float* weights_are_ = nullptr;
  const float* staged_are_ = nullptr;
  /// The memory that state() returns.
  std::vector<float> read_;
};

} // namespace troupe::cuda
