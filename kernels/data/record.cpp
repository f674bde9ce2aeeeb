#include "kernels/data/record.hpp"

namespace troupe {

std::string_view to_string(feature_kind kind) noexcept {
  switch (kind) {
  case feature_kind::numbers:
    return "numbers";
  case feature_kind::tokens:
    return "tokens";
  case feature_kind::sparse:
    return "sparse numbers";
  }
  return "invalid";
}

std::string to_string(const record_shape& x) {
  std::string result = to_string(x.dims) + ' ' + std::string{to_string(x.features)};
  if (x.features == feature_kind::tokens)
    result += x.vocabulary == any_int32 ? " of int32" : " of " + std::to_string(x.vocabulary);
  result += " and " + std::to_string(x.label_width)
    + (x.labels == label_kind::classes ? " classes" : " targets");
  if (x.labels_per_record > 1)
    result += " at " + std::to_string(x.labels_per_record) + " positions";
  return result;
}

} // namespace troupe
