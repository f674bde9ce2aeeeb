#include "actors/model/data_shape.hpp"

#include "kernels/error.hpp"

#include <vector>

namespace troupe {

data_shape shape_of(const dataset& x) {
  return {x.record(), x.size()};
}

std::string to_string(const data_shape& x) {
  return std::to_string(x.train_records) + " training records of "
    + to_string(static_cast<const record_shape&>(x));
}

proto::DataShape to_proto(const data_shape& x) {
  proto::DataShape result;
  result.set_train_records(x.train_records);
  result.set_tokens(x.features == feature_kind::tokens);
  result.set_sparse(x.features == feature_kind::sparse);
  result.mutable_dims()->Assign(x.dims.extents().begin(), x.dims.extents().end());
  result.set_vocabulary(x.vocabulary);
  result.set_classes(x.labels == label_kind::classes);
  result.set_label_width(x.label_width);
  result.set_labels_per_record(x.labels_per_record);
  return result;
}

data_shape from_proto(const proto::DataShape& x) {
  data_shape result;
  result.train_records = x.train_records();
  result.features = x.tokens() ? feature_kind::tokens
    : x.sparse()               ? feature_kind::sparse
                               : feature_kind::numbers;
  // Larger numbers are not real data, and they would overflow.
  constexpr double most = 1e15;
  double elements = 1;
  for (const auto n : x.dims())
    elements *= n < 0 ? most * 2 : static_cast<double>(n);
  const double labels =
    static_cast<double>(x.label_width()) * static_cast<double>(x.labels_per_record());
  if (!(elements <= most) || !(labels <= most) || labels == 0 || x.train_records() == 0)
    throw input_error("data of " + std::to_string(x.train_records()) + " records with "
                      + std::to_string(x.dims_size()) + " dimensions, and "
                      + std::to_string(x.label_width()) + " classes or targets at "
                      + std::to_string(x.labels_per_record()) + " positions");
  result.dims = shape{std::vector<std::int64_t>{x.dims().begin(), x.dims().end()}};
  result.vocabulary = x.vocabulary();
  result.labels = x.classes() ? label_kind::classes : label_kind::targets;
  result.label_width = x.label_width();
  result.labels_per_record = x.labels_per_record();
  return result;
}

} // namespace troupe
