#include "actors/model/data_metadata.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace troupe {

std::map<std::string, std::string> metadata_of(const job_data& data) {
  std::map<std::string, std::string> result;
  const auto add = [&](const char* name, const auto& values) {
    // Names come from files and may not be valid UTF-8.
    result[name] =
      nlohmann::json(values).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  if (data.normalization) {
    add("feature_mean", data.normalization->shift);
    add("feature_deviation", data.normalization->scale);
  }
  if (const auto& x = data.scaling) {
    const bool scaled = std::ranges::any_of(x->target_mean, [](double m) { return m != 0; })
      || std::ranges::any_of(x->target_scale, [](double s) { return s != 1; });
    if (scaled) {
      add("target_mean", x->target_mean);
      add("target_deviation", x->target_scale);
    }
  }
  if (!data.feature_names.empty())
    add("features", data.feature_names);
  if (!data.class_names.empty())
    add("classes", data.class_names);
  return result;
}

} // namespace troupe
