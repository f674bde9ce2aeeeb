#pragma once

#include "kernels/graph/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// The vocabulary of whole numbers that select no rows of a table: any int32 is accepted.
inline constexpr std::size_t any_int32 = std::size_t{1} << 31;

/// The kind of a record's features.
enum class feature_kind : std::uint8_t {
  numbers, ///< floats
  tokens,  ///< int32 in [0, vocabulary), or any int32 (any_int32)
  sparse,  ///< floats that are mostly 0; only the others are stored, with their columns; dims has
           ///< one extent
};

/// "numbers", "tokens", "sparse numbers".
std::string_view to_string(feature_kind kind) noexcept;

/// The kind of a record's labels.
enum class label_kind : std::uint8_t {
  classes, ///< int32 in [0, label_width): one, or one per position of a sequence
  targets, ///< label_width floats
};

/// The properties that all records of a data set share. A model is built for these properties.
struct record_shape {
  feature_kind features = feature_kind::numbers;
  /// Shape of a record's features without the batch: (4) for four columns, (1, 28, 28) for a grey
  /// image, (64) for 64 tokens.
  shape dims;
  /// For tokens: number of different tokens, or any_int32.
  std::size_t vocabulary = 0;
  label_kind labels = label_kind::classes;
  /// For classes: the number of classes. For targets: floats per record.
  std::size_t label_width = 0;
  /// For classes: number of labels per record. More than one for sequences with a label at each
  /// position.
  std::size_t labels_per_record = 1;

  /// Features per record.
  std::size_t feature_width() const noexcept { return dims.elements(); }
  /// Number of int32 labels, or of floats, of a record.
  std::size_t label_elements() const noexcept {
    return labels == label_kind::classes ? labels_per_record : label_width;
  }
  bool operator==(const record_shape&) const = default;
};

/// "(1, 28, 28) numbers and 10 classes".
std::string to_string(const record_shape& x);

} // namespace troupe
