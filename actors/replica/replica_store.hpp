#pragma once

#include "actors/model/job_context.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// A worker's own copy of all parameters, for protocols without parameter shards: in buckets, each
/// with its versions and the state of the optimizer.
///
/// An update has two halves. `stage` and `overwrite` compute the next version of a bucket out of
/// place, in any order of the buckets, while others read the newest version. `publish` makes the
/// staged weights and states the newest ones, of all buckets at once; `discard` forgets them.
///
/// Used by one actor. Payloads that it hands out may go to other threads.
class replica_store {
public:
  /// Weights of a bucket: parameters [begin, begin + data.size() / 4), float32.
  struct part {
    std::uint64_t begin = 0;
    std::uint64_t version = 0;
    payload data;
  };

  /// Initial weights, version 0. Of each bucket it holds the optimizer's state of even part `index`
  /// of `count` alone: its own part.
  explicit replica_store(std::shared_ptr<const job_context> context, std::size_t index = 0,
                         std::size_t count = 1);

  /// Bytes of the optimizer's state for so many parameters: it is held twice.
  static std::size_t state_bytes(const job_context& context, std::size_t elements) noexcept {
    return 2 * range_updater::memory_bytes(context, elements);
  }

  // -- buckets, in the order in which backward makes them ready -----------------------------------

  std::size_t buckets() const noexcept { return buckets_.size(); }
  range where(std::size_t bucket) const { return buckets_.at(bucket)->where; }
  range own(std::size_t bucket) const { return buckets_.at(bucket)->own; }
  /// The bucket of exactly this range; nothing where there is none.
  std::optional<std::size_t> find(range where) const;

  // -- the newest version -------------------------------------------------------------------------

  std::uint64_t version() const noexcept { return version_; }

  /// The newest weights without a copy: parts in ascending order that cover the parameters. They
  /// stay as they are while they are held. Of `replica_slots` versions, the newest one included,
  /// one must be free to stage the next.
  std::vector<part> newest();

  /// A copy of the weights, or of one slot of the optimizer's state, of this range. It holds that
  /// state.
  payload weights(range where) const;
  payload state(std::size_t slot, range where) const;

  /// For a checkpoint: of this range, the weights, followed by the slots of the state. For an
  /// evaluation: the weights alone.
  std::vector<payload> capture(range share, bool with_state) const;

  // -- the next version ---------------------------------------------------------------------------

  /// An update of the bucket's own part from the gradient of that part, summed over the samples. If
  /// that is not all of the bucket, it is staged with `complete`. 0 samples: the weights of the
  /// whole bucket, and the state, will not change. Staging a bucket again replaces what was staged.
  /// @param factor of the gradient of trainable parameters: clip_factor()
  /// @return false where readers hold all versions of the bucket; nothing is staged then
  bool stage(std::size_t bucket, std::span<const float> gradient, std::uint64_t samples,
             double factor = 1);

  /// A copy of the weights of the own part that were staged.
  payload staged_part(std::size_t bucket) const;

  /// The next weights of the whole bucket, whose own part is staged: others updated the rest.
  void complete(std::size_t bucket, std::span<const float> weights);

  /// Other weights for the bucket, such as an average over workers. Its state will not change, and
  /// no update is counted.
  /// @return as stage()
  bool overwrite(std::size_t bucket, std::span<const float> weights);

  /// All buckets are staged.
  bool staged() const noexcept;

  /// All buckets must be staged.
  /// @param left_out samples of this step whose gradient was left out: the learning-rate schedule
  /// counts them
  void publish(std::uint64_t version, std::uint64_t left_out = 0) noexcept;

  void discard() noexcept;

  // -- resumption ---------------------------------------------------------------------------------

  /// Before training: goes on from one slot of a checkpoint, 0 for the weights, k for the k-th
  /// state; `values` are those of all parameters. Ignored once `newest` was called: it is a
  /// repetition that came late.
  /// @param samples trained so far
  /// @return false where the slot or the size does not fit; nothing changes then
  bool restore(std::size_t slot, std::uint64_t version, std::uint64_t samples,
               const payload& values);

private:
  struct bucket {
    bucket(const job_context& context, range where, range own);

    /// The own part, within the bucket.
    range inner() const { return {own.begin - where.begin, own.end - where.begin}; }

    range where;
    range own;
    version_pool versions;
    range_updater updater;
    bool staged = false;
  };

  template <class Source>
  payload gather(range share, Source source) const;

  std::shared_ptr<const job_context> context_;
  /// Pools do not move.
  std::vector<std::unique_ptr<bucket>> buckets_;
  std::uint64_t version_ = 0;
  bool read_ = false;
};

} // namespace troupe
