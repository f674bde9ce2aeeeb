#pragma once

#include "kernels/data/record.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// Where dataset::read writes the sparse features of a batch, as compressed rows. Row i has the
/// entries from row_starts[i] up to, but not including, row_starts[i + 1].
struct sparse_batch {
  /// (batch + 1). The caller sets the first element: the position in `columns` and `values` at
  /// which the entries of the batch begin.
  std::span<std::int32_t> row_starts;
  std::span<std::int32_t> columns; ///< from 0; room for all entries of the batch
  std::span<float> values;         ///< same size as columns
};

/// Where dataset::read writes the features. Only the member for the data set's kind of features is
/// set. The other members stay empty.
struct feature_batch {
  std::span<float> numbers;       ///< (batch, dims...), row-major
  std::span<std::int32_t> tokens; ///< (batch, dims...), row-major
  sparse_batch sparse;            ///< (batch, dims) as compressed rows

  feature_batch() = default;
  feature_batch(std::span<float> x) : numbers(x) {}       // NOLINT: implicit
  feature_batch(std::span<std::int32_t> x) : tokens(x) {} // NOLINT: implicit
  feature_batch(sparse_batch x) : sparse(x) {}            // NOLINT: implicit
};

/// Where dataset::read writes the labels. Only the member for the data set's kind of labels is set.
/// The other member stays empty.
struct label_batch {
  std::span<std::int32_t> classes; ///< (batch, labels_per_record)
  std::span<float> targets;        ///< (batch, label_width), row-major
};

/// Records to train or test on. Input readers read records through this interface. An embedding
/// program implements it to provide its own data.
///
/// A data set does not change while it is shared (`std::shared_ptr<const dataset>`). Sizes and
/// kinds are constant. Record i is the same record on every node, because nodes refer to samples by
/// number. Several threads may call any member at the same time.
class dataset {
public:
  dataset() = default;
  dataset(const dataset&) = delete;
  dataset& operator=(const dataset&) = delete;
  virtual ~dataset();

  /// Number of records; they are numbered 0 .. size() - 1.
  virtual std::uint64_t size() const noexcept = 0;

  /// The shape of the records.
  virtual const record_shape& record() const noexcept = 0;

  /// Bytes of memory that the records take, for estimates. 0 if unknown.
  virtual std::size_t memory_bytes() const noexcept { return 0; }

  /// The data set that has the records in memory. Usually, this is `*this`. For a data set that
  /// wraps another one, such as a subset, it is the wrapped data set.
  virtual const dataset& storage() const noexcept { return *this; }

  /// The number of a record in its source, such as a file. Usually, this is `record`. For a data
  /// set that wraps another one, such as a subset, it is the number in the source of the wrapped
  /// one.
  virtual std::uint64_t origin(std::uint64_t record) const { return record; }

  /// For sparse features: the total number of entries in these records, at most 2^31 - 1.
  virtual std::uint64_t entries(std::span<const std::uint64_t>) const { return 0; }

  /// Reads a batch: one row per element of `records`, in that order. A record may appear twice.
  ///
  /// It allocates nothing, keeps no reference, and does not fail, because the caller guarantees
  /// that each record is below size() and that the outputs have exactly the sizes below. If a
  /// program's data set still throws (for example, because its disk failed), the run ends with that
  /// error. A call may block, because batches are read in advance, on threads that do nothing else.
  /// @param records (batch)
  /// @param features (batch, record().dims...), row-major
  /// @param labels (batch, labels_per_record) classes, or (batch, label_width) targets
  virtual void read(std::span<const std::uint64_t> records, feature_batch features,
                    label_batch labels) const = 0;

  /// Reads only the labels, in the same way as `read`. Returns false and reads nothing if this is
  /// not cheaper than reading the features as well.
  virtual bool read_labels(std::span<const std::uint64_t>, label_batch) const { return false; }
};

} // namespace troupe
