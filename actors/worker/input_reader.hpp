#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "actors/worker/pinned_pool.hpp"
#include "kernels/cpu/thread_team.hpp"
#include "kernels/data/augmentation.hpp"
#include "messages/synchronizer.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Loads the data of a job, from the job's files (`build_data`) or from an embedding program. It is
/// called once per worker, on the thread of the worker's input_reader, and may block. Calls for
/// several workers may run at the same time. All calls on all nodes must return the same records
/// with the same numbers. If the function throws, the run ends with the text of the exception.
using data_source = std::function<job_data(const proto::Job&)>;

/// Requests the samples at positions [begin, end) of an epoch. (Each epoch orders the samples by a
/// random permutation.) The answer is a batch_read with the same ticket.
struct read_batch {
  std::uint64_t ticket = 0;
  std::uint32_t epoch = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// A batch of `rows` samples. features: (rows, dims...) float32, or int32 for tokens. labels:
/// (rows, labels_per_record) int32, or (rows, label_width) float32.
///
/// If the features are sparse, the batch has the format CSR: `features` has the values, `columns`
/// their columns (int32), and `row_starts` (rows + 1, int32) the position of each row's first
/// value. `features` and `columns` may be longer than needed.
struct sample_batch {
  std::size_t rows = 0;
  /// Seed of random masks, such as those of dropout. It depends on the job's seed, the epoch and
  /// the batch's position in the epoch. So a batch that is trained again gets the same masks, for
  /// example after a rejection or by another worker.
  std::uint64_t seed = 0;
  payload features;
  payload row_starts;
  payload columns;
  payload labels;
};

/// The samples of a gradient: one batch or, with `accumulate`, several.
struct batch_read {
  std::uint64_t ticket = 0;
  /// Number of rows of all batches together.
  std::size_t rows = 0;
  /// The batches, at least one. A batch may have no samples.
  std::vector<sample_batch> batches;
  /// The weights that the batches read. Null if they read all weights.
  batch_rows touched;
};

/// Reports that the data is loaded. If loading failed, `problem` says why.
struct input_ready {
  std::string problem;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::read_batch)
TROUPE_LOCAL_MESSAGE(troupe::batch_read)
TROUPE_LOCAL_MESSAGE(troupe::input_ready)

namespace troupe {

using input_actor = caf::typed_actor<rpc<void, read_batch>>;
using input_listener = caf::typed_actor<rpc<void, batch_read>, rpc<void, input_ready>>;

/// Opens pinned memory for a worker on a GPU. It is called on the thread of the input_reader. It
/// may throw device_error.
using pinned_memory_source = std::function<std::shared_ptr<pinned_memory>()>;

/// Reads batches for the worker, on its own thread and, with data.read_threads, on more threads.
/// First, it loads the data and reports whether this succeeded (input_ready).
class input_reader : public input_actor::base {
public:
  using super = input_actor::base;

  /// @param pinned for the features of large batches; null if the worker computes on the CPU
  input_reader(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
               data_source source, input_listener listener, pinned_memory_source pinned);

  const char* name() const override { return "troupe.input"; }

protected:
  behavior_type make_behavior() override;

private:
  void load();
  void prepare();
  void on_read(const read_batch& x);
  sample_batch read(std::uint32_t epoch, std::uint64_t begin, std::uint64_t end);
  feature_batch make_features(sample_batch& out);
  feature_batch make_sparse_features(sample_batch& out);
  void gather(std::uint32_t epoch, const feature_batch& features, const label_batch& labels);
  void gather_rows(std::uint32_t epoch, const feature_batch& features, const label_batch& labels,
                   range rows);
  void add_named(const sample_batch& x, std::vector<std::int32_t>& rows) const;
  batch_rows touched_by(const batch_read& x) const;

  std::shared_ptr<const job_context> context_;
  data_source source_;
  input_listener listener_;
  std::shared_ptr<const dataset> data_;
  augmentation augmentation_;
  pinned_memory_source open_pinned_;
  /// For features; null if they are in other memory.
  std::shared_ptr<pinned_pool> pinned_;
  /// Absent if one thread gathers the batches.
  std::optional<thread_team> team_;
  /// The records of the current batch.
  std::vector<std::uint64_t> records_;
  /// For each thread: the exception that ended its part of the batch.
  std::vector<std::exception_ptr> failures_;
};

} // namespace troupe
