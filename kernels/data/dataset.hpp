#pragma once

#include "kernels/data/record.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// Sparse features of a batch, as compressed rows: the entries of row i are row_starts[i] up to,
/// not including, row_starts[i + 1].
struct sparse_batch {
  /// (batch + 1). The caller sets the first one: entries are written from there on.
  std::span<std::int32_t> row_starts;
  std::span<std::int32_t> columns; ///< from 0; room for all entries of the batch
  std::span<float> values;         ///< as columns
};

/// Where `dataset::read` puts features: the member that matches the data set's feature kind; the
/// others stay empty.
struct feature_batch {
  std::span<float> numbers;       ///< (batch, dims...), row-major
  std::span<std::int32_t> tokens; ///< (batch, dims...), row-major
  sparse_batch sparse;            ///< rows of dims

  feature_batch() = default;
  feature_batch(std::span<float> x) : numbers(x) {}       // NOLINT: implicit
  feature_batch(std::span<std::int32_t> x) : tokens(x) {} // NOLINT: implicit
  feature_batch(sparse_batch x) : sparse(x) {}            // NOLINT: implicit
};

/// Where `dataset::read` puts labels: the member that matches the data set's label kind; the other
/// stays empty.
struct label_batch {
  std::span<std::int32_t> classes; ///< (batch, labels_per_record)
  std::span<float> targets;        ///< (batch, label_width), row-major
};

/// Records to train or test on: what input readers read, and what an embedding program implements
/// to feed its own data.
///
/// A data set does not change while it is shared (`std::shared_ptr<const dataset>`): sizes and
/// kinds are constant, and record i is the same record on every node, because nodes refer to
/// samples by number. All members may be called from several threads at once.
class dataset {
public:
  dataset() = default;
  dataset(const dataset&) = delete;
  dataset& operator=(const dataset&) = delete;
  virtual ~dataset();

  /// Number of records; they are numbered 0 .. size() - 1.
  virtual std::uint64_t size() const noexcept = 0;

  /// What the records look like.
  virtual const record_shape& record() const noexcept = 0;

  /// Bytes of memory that the records take, for estimates; 0 if not known.
  virtual std::size_t memory_bytes() const noexcept { return 0; }

  /// The data set that holds the records: this one, unless it is a view of another one.
  virtual const dataset& storage() const noexcept { return *this; }

  /// The record's number in the data that it was taken from, such as a file: `record` itself,
  /// unless this data set is a view of another one.
  virtual std::uint64_t origin(std::uint64_t record) const { return record; }

  /// Sparse features: how many entries these records have together, at most 2^31 - 1.
  virtual std::uint64_t entries(std::span<const std::uint64_t>) const { return 0; }

  /// Gathers a batch, one row per entry of `records`, in that order; a record may appear twice.
  ///
  /// Allocates nothing, keeps no reference, and does not fail: the caller guarantees that each
  /// record is below size() and that the outputs have exactly the sizes below. If a program's data
  /// set throws anyway (its disk is gone), the run ends with that error. Blocking is fine: batches
  /// are read ahead, on threads that do nothing else.
  /// @param records (batch)
  /// @param features (batch, record().dims...), row-major
  /// @param labels (batch, labels_per_record) classes, or (batch, label_width) targets
  virtual void read(std::span<const std::uint64_t> records, feature_batch features,
                    label_batch labels) const = 0;

  /// The labels alone, as `read` gathers them, where that is cheaper than to gather the features,
  /// too. False where it is not: then nothing was read.
  virtual bool read_labels(std::span<const std::uint64_t>, label_batch) const { return false; }
};

} // namespace troupe
