#pragma once

#include "kernels/data/labels.hpp"
#include "kernels/formats/libsvm.hpp"

namespace troupe {

/// Sparse rows with labels, kept as compressed rows.
class sparse_dataset final : public dataset {
public:
  /// Moves the entries of the rows into this object.
  /// @param features width of a record: at least the width of the rows, at most 2^31.
  /// @param name the name of the input in errors.
  /// @throws input_error: an index beyond `features`, different numbers of labels and rows, or no
  /// features.
  sparse_dataset(libsvm_rows rows, std::size_t features, stored_labels labels,
                 std::string_view name);

  std::uint64_t size() const noexcept override { return labels_.size(); }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override;
  std::uint64_t entries(std::span<const std::uint64_t> records) const override;
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override;

private:
  libsvm_rows rows_; // without labels
  stored_labels labels_;
  record_shape record_;
};

} // namespace troupe
