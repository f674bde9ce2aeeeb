#include "actors/model/label_check.hpp"

#include "actors/model/dataset_labels.hpp"
#include "kernels/error.hpp"
#include "kernels/text.hpp"

#include <string>

namespace troupe {

namespace {

void check_part(const dataset& part, bool hinge, const std::string& name) {
  const auto targets = read_labels(part).targets;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto t = targets[i];
    if (hinge ? t == -1 || t == 1 : t >= 0 && t <= 1)
      continue;
    throw input_error("data: " + name + " record "
                      + std::to_string(part.origin(i / part.record().label_width)) + " has target "
                      + number_text(t) + "; model.loss: "
                      + (hinge ? "HINGE expects -1 or 1" : "BINARY_CROSS_ENTROPY expects 0 to 1")
                      + ". For numbers to predict, use MEAN_SQUARED_ERROR; for classes of a table, "
                        "data.csv.label");
  }
}

} // namespace

void check_targets(const proto::Model& model, const job_data& data) {
  const bool hinge = model.loss() == proto::HINGE;
  if ((!hinge && model.loss() != proto::BINARY_CROSS_ENTROPY)
      || data.train->record().labels != label_kind::targets)
    return;
  check_part(*data.train, hinge, "training");
  if (data.validation)
    check_part(*data.validation, hinge, "validation");
  if (data.test != data.train)
    check_part(*data.test, hinge, "test");
}

} // namespace troupe
