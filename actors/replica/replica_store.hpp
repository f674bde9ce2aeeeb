#pragma once

#include "actors/model/job_context.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/replica/replica_home.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// A worker's own copy (replica) of all parameters, for protocols without parameter shards. The
/// parameters are divided into buckets. Each bucket has several versions of its weights, and its
/// optimizer state.
///
/// An update has two halves. `stage` computes the next version of a bucket in new memory, while
/// readers use the newest version. Buckets may come in any order. `publish` makes the staged
/// weights and states of all buckets the newest ones, all at the same time. `discard` drops them.
/// `replace` replaces the newest weights by others, such as an average over workers.
///
/// The replica may live on a GPU (replica_home). The GPU then makes the updates. The weights of a
/// version are copied to the host's memory when they are first read there. All functions without
/// noexcept may then throw device_error.
///
/// Only one actor may use it. The payloads that it returns may go to other threads.
class replica_store {
public:
  /// Weights of a bucket: parameters [begin, begin + data.size() / 4), float32.
  struct part {
    std::uint64_t begin = 0;
    std::uint64_t version = 0;
    payload data;
  };

  /// Starts with the initial weights, version 0. Each bucket is divided into `count` equal parts.
  /// Part `index` is this worker's own part: only for this part does the store hold optimizer
  /// state. On a GPU, `count` must be 1.
  explicit replica_store(std::shared_ptr<const job_context> context, std::size_t index = 0,
                         std::size_t count = 1, replica_home home = {});

  /// Bytes of optimizer state for this many parameters. The state needs memory twice: the newest
  /// state and the staged state.
  static std::size_t state_bytes(const job_context& context, std::size_t elements) noexcept {
    return 2 * range_updater::memory_bytes(context, elements);
  }

  // -- buckets, in the order of the backward pass -------------------------------------------------

  std::size_t buckets() const noexcept { return buckets_.size(); }
  range where(std::size_t bucket) const { return buckets_.at(bucket)->where; }
  range own(std::size_t bucket) const { return buckets_.at(bucket)->own; }
  /// The bucket with exactly this range; nothing if there is none.
  std::optional<std::size_t> find(range where) const;

  const replica_home& home() const noexcept { return home_; }

  // -- the newest version -------------------------------------------------------------------------

  std::uint64_t version() const noexcept { return version_; }

  /// Number of updates of the optimizer's state, including those of earlier runs. The version may
  /// be larger, because versions may skip numbers.
  std::uint64_t updates() const noexcept { return buckets_.front()->updater.updates(); }

  /// The newest weights as parts in ascending order, which together cover all parameters. The
  /// weights are not copied, and do not change while a reader holds them. A bucket has memory for
  /// `replica_slots` versions. If readers hold all of them, the next version gets new memory.
  std::vector<part> newest();

  /// Like newest(), for a worker that trains with these weights. Empty if the worker's GPU holds
  /// the weights.
  std::vector<part> to_train();

  /// The newest weights of a bucket. Valid until the next publish(), replace() or restore().
  std::span<const float> published(std::size_t bucket) const {
    return newest_of(*buckets_.at(bucket));
  }

  /// These functions return copies of this range: the weights, the weights to evaluate (the moving
  /// average if the job has one), and one slot of the optimizer's state. For the state, the store
  /// must hold the state of the whole range.
  payload weights(range where) const;
  payload evaluated(range where) const;
  payload state(std::size_t slot, range where) const;

  /// Copies of this range, for an evaluation or a checkpoint. Without state (evaluation): only
  /// evaluated(). With state (checkpoint): the weights, the slots of the optimizer's state, and the
  /// moving average if the job has one.
  std::vector<payload> capture(range share, bool with_state) const;

  // -- the next version ---------------------------------------------------------------------------

  /// Stages an update of this worker's own part of a bucket (see own()), from the gradient of this
  /// part, summed over the samples. If the own part is not the whole bucket, `complete` stages the
  /// rest. With 0 samples, the weights and the state stay the same. Staging a bucket again replaces
  /// the previous staged version.
  ///
  /// If the gradients stay on the GPU, the updates begin when all buckets are staged: the GPU then
  /// updates many buckets in one launch.
  /// @param gradient empty if it stays on the GPU (residence::gradients_on_gpu)
  /// @param how must not have a `moment`. If the gradient stays on the GPU, it must not have an
  /// `addend` or a flag `finite` either
  void stage(std::size_t bucket, std::span<const float> gradient, std::uint64_t samples,
             const range_updater::terms& how);
  /// @param factor factor on the gradient of trainable parameters, such as clip_factor()
  void stage(std::size_t bucket, std::span<const float> gradient, std::uint64_t samples,
             double factor = 1) {
    stage(bucket, gradient, samples, range_updater::terms{.factor = factor});
  }

  // -- with replica_home::in_ring: the sum of all ranks' gradients (device_updater) ---------------

  /// These functions call device_updater::add_up and device_updater::gather for a bucket. After
  /// add_up(), the next update uses the sum of the gradients.
  void add_up(std::size_t bucket) { buckets_.at(bucket)->updater.add_up(); }
  void gather(std::size_t bucket) { buckets_.at(bucket)->updater.gather(); }
  /// Waits for the sums of all buckets. Returns their squared norm, without statistics of layers;
  /// NaN if an element is not finite.
  double squared_norm_of_sums();
  /// Sets this rank's gradient to 0 before the next sums.
  void clear_gradient();

  // -- the next version, continued ----------------------------------------------------------------

  /// A copy of the staged weights of the own part.
  payload staged_part(std::size_t bucket) const;

  /// Stages the whole bucket with these weights. The own part must already be staged. Other ranks
  /// have computed the rest.
  void complete(std::size_t bucket, std::span<const float> weights);

  /// True if all buckets are staged.
  bool staged() const noexcept;

  /// Makes the staged versions the newest ones. All buckets must be staged.
  /// @param left_out samples of this step whose gradient was left out: the learning-rate schedule
  /// counts them too
  void publish(std::uint64_t version, std::uint64_t left_out = 0) noexcept;

  void discard() noexcept;

  // -- between updates ----------------------------------------------------------------------------

  /// Replaces the newest weights of this range immediately, without an update. Frozen weights, the
  /// version and the optimizer's state stay the same. Nothing may be staged.
  void replace(range where, std::span<const float> weights);

  /// Sets the position in the learning-rate schedule, in samples of all workers.
  void set_samples(std::uint64_t samples) noexcept;

  // -- resumption ---------------------------------------------------------------------------------

  /// Loads one slot of a checkpoint, before training. Slot 0 has the weights, slot k the k-th
  /// vector of the optimizer's state, and the last slot the moving average. `values` covers all
  /// parameters. After the first call of newest() or to_train(), this does nothing, because the
  /// message is then a late repetition.
  /// @return false if the slot or the size does not fit; nothing changes then
  bool restore(const proto::Restore& x, const payload& values);

private:
  struct bucket {
    bucket(const job_context& context, range where, range own, const replica_home& home);

    /// The own part, with positions relative to the bucket.
    range inner() const { return {own.begin - where.begin, own.end - where.begin}; }

    range where;
    range own;
    /// The versions in the host's memory. If the replica is on a GPU, the newest version may be
    /// missing here (see `here`).
    version_pool versions;
    range_updater updater;
    /// The moving average; empty if the job has none.
    std::vector<float> average;
    bool staged = false;
    /// The samples and terms of a staged update that has not begun, because its gradient is on the
    /// GPU and other buckets are not yet staged.
    std::optional<std::pair<std::uint64_t, range_updater::terms>> waiting;
    /// False if the newest version is only on the GPU.
    bool here = true;
  };

  bool on_gpu() const noexcept { return home_.gpu != nullptr; }
  void begin_updates();
  /// The newest weights of a bucket, copied from the GPU if the host's memory does not have them.
  std::span<const float> newest_of(bucket& x) const;

  template <class Source>
  payload gather(range share, Source source) const;

  std::shared_ptr<const job_context> context_;
  replica_home home_;
  /// Pointers, because pools cannot be moved.
  std::vector<std::unique_ptr<bucket>> buckets_;
  std::uint64_t version_ = 0;
  bool read_ = false;
};

} // namespace troupe
