#include "actors/model/data_metadata.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"
#include "kernels/formats/safetensors.hpp"

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace troupe {

namespace {

/// Largest size of all metadata in bytes. Most of the header of a file of weights is left for them.
constexpr std::size_t most_metadata = max_safetensors_header - (std::size_t{16} << 20);

/// Largest length of a list of names in an error, in bytes.
constexpr std::size_t longest_names = 300;

using metadata = std::map<std::string, std::string>;

/// Returns the means and deviations in the metadata, or `now` if the metadata have none. Throws
/// input_error if the metadata are damaged, or if they have another number of means than `now`. Any
/// number of means is allowed if `now` has a single mean for all features.
/// @param now the scaling of the new data
feature_scaling scaling_in(const metadata& x, const std::string& what, const feature_scaling& now,
                           const std::string& name) {
  if (!x.contains(what + "_mean") || !x.contains(what + "_deviation"))
    return now;
  const auto numbers = [&](const std::string& key) {
    const auto parsed = nlohmann::json::parse(x.at(key), nullptr, false);
    std::vector<double> result;
    for (const auto& each : parsed)
      result.push_back(each.is_number() ? each.get<double>() : std::nan(""));
    const bool finite =
      std::ranges::all_of(result, [](double each) { return std::isfinite(each); });
    if (!parsed.is_array() || result.empty() || !finite)
      throw input_error(name + ": metadata \"" + key + "\": expected a list of finite numbers");
    return result;
  };
  feature_scaling result{numbers(what + "_mean"), numbers(what + "_deviation")};
  if (result.shift.size() != result.scale.size() || std::ranges::count(result.scale, 0.0) > 0
      || (now.shift.size() != 1 && now.shift.size() != result.shift.size()))
    throw input_error(name + ": metadata \"" + what + "_mean\", \"" + what
                      + "_deviation\": " + std::to_string(result.shift.size()) + " and "
                      + std::to_string(result.scale.size()) + " numbers; expected "
                      + std::to_string(now.shift.size()) + ", and deviations other than 0");
  return result;
}

std::string json_of(const data_shape& x) {
  std::string result;
  google::protobuf::util::JsonPrintOptions how;
  how.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(to_proto(x), &result, how).ok())
    throw std::logic_error("data_metadata: a shape has no JSON");
  return result;
}

/// A list or map in the metadata; empty if there is none.
template <class T>
T entry_in(const metadata& x, const std::string& key, const std::string& name) {
  if (!x.contains(key))
    return {};
  try {
    return nlohmann::json::parse(x.at(key)).get<T>();
  } catch (const nlohmann::json::exception&) {
    throw input_error(name + ": metadata \"" + key + "\": damaged, found "
                      + excerpt(x.at(key), longest_names));
  }
}

/// The scaling that turns numbers scaled by `from` into numbers scaled by `to`.
feature_scaling change(const feature_scaling& from, const feature_scaling& to) {
  feature_scaling result;
  for (std::size_t i = 0; i < to.shift.size(); ++i) {
    const auto k = from.shift.size() == 1 ? 0 : i;
    result.shift.push_back((to.shift[i] - from.shift[k]) / from.scale[k]);
    result.scale.push_back(to.scale[i] / from.scale[k]);
  }
  return result;
}

/// A data set with shifted and scaled targets.
class rescaled_targets final : public dataset {
public:
  rescaled_targets(std::shared_ptr<const dataset> whole, feature_scaling how)
    : whole_(std::move(whole)), how_(std::move(how)) {}

  std::uint64_t size() const noexcept override { return whole_->size(); }
  const record_shape& record() const noexcept override { return whole_->record(); }
  std::size_t memory_bytes() const noexcept override { return whole_->memory_bytes(); }
  const dataset& storage() const noexcept override { return whole_->storage(); }
  std::uint64_t origin(std::uint64_t record) const override { return whole_->origin(record); }
  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    return whole_->entries(records);
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    whole_->read(records, features, labels);
    rescale(labels.targets);
  }

  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    const bool result = whole_->read_labels(records, labels);
    if (result)
      rescale(labels.targets);
    return result;
  }

private:
  void rescale(std::span<float> targets) const {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const auto k = i % how_.shift.size();
      targets[i] =
        static_cast<float>((static_cast<double>(targets[i]) - how_.shift[k]) / how_.scale[k]);
    }
  }

  std::shared_ptr<const dataset> whole_;
  feature_scaling how_;
};

/// Throws if a file of weights cannot hold these metadata.
void require_room(const metadata& x, const column_facts& columns) {
  const auto bytes = [](const auto& entries) {
    return std::accumulate(entries.begin(), entries.end(), std::size_t{0},
                           [](std::size_t sum, const auto& y) { return sum + y.second.size(); });
  };
  // Most metadata are short. Only long ones are written twice, because that takes time.
  if (2 * bytes(x) < most_metadata)
    return;
  // The size in the file, where each quote is preceded by a backslash.
  const auto size = nlohmann::json(x).dump().size();
  if (size <= most_metadata)
    return;
  const auto largest =
    std::ranges::max_element(columns.categories, {}, [](const auto& y) { return y.second.size(); });
  throw input_error(
    "the names and scalings of the features take " + std::to_string(size)
    + " bytes in a file of weights; expected at most " + std::to_string(most_metadata)
    + (largest == columns.categories.end() ? "; use fewer features, or shorter names"
                                           : ". Column \"" + excerpt(largest->first) + "\" has "
           + std::to_string(largest->second.size())
           + " categories: leave it out, or give the categories shorter names"));
}

void require_names(const metadata& here, const metadata& trained, const std::string& name) {
  for (const std::string key : {"features", "classes"})
    if (here.contains(key) && trained.contains(key) && here.at(key) != trained.at(key))
      throw input_error(name + ": the model was trained with the " + key + ' '
                        + excerpt(trained.at(key), longest_names) + ", but the data have "
                        + excerpt(here.at(key), longest_names)
                        + "; expected the same, in the same order");
}

} // namespace

job_data as_trained(job_data data, const std::map<std::string, std::string>& trained,
                    const std::string& name) {
  require_names(metadata_of(data), trained, name);
  const feature_scaling none{{0}, {1}};
  const auto features = data.normalization.value_or(none);
  const auto wanted = scaling_in(trained, "feature", features, name);
  if (wanted.shift != features.shift || wanted.scale != features.scale) {
    data.test = normalized(data.test, change(features, wanted));
    data.normalization = wanted;
  }
  if (data.test->record().labels != label_kind::targets)
    return data;
  auto scaling = data.scaling.value_or(column_scaling{{}, {}, {0}, {1}});
  const feature_scaling targets{scaling.target_mean, scaling.target_scale};
  const auto units = scaling_in(trained, "target", targets, name);
  if (units.shift != targets.shift || units.scale != targets.scale) {
    data.test = std::make_shared<const rescaled_targets>(data.test, change(targets, units));
    scaling.target_mean = units.shift;
    scaling.target_scale = units.scale;
    data.scaling = std::move(scaling);
  }
  return data;
}

column_facts columns_in(const std::map<std::string, std::string>& trained,
                        const std::string& name) {
  using names = std::vector<std::string>;
  return {entry_in<std::map<std::string, names>>(trained, "categories", name),
          entry_in<std::map<std::string, double>>(trained, "replacements", name),
          entry_in<names>(trained, "columns", name)};
}

data_facts facts_in(const std::map<std::string, std::string>& metadata, const std::string& name) {
  proto::DataShape shape;
  const auto found = metadata.find("data");
  if (found == metadata.end()
      || !google::protobuf::util::JsonStringToMessage(found->second, &shape).ok())
    throw input_error(name + ": metadata \"data\": expected the shape of the training data");
  data_facts result;
  result.shape = from_proto(shape);
  if (metadata.contains("feature_mean"))
    result.normalization = scaling_in(metadata, "feature", {{0}, {1}}, name);
  result.targets = scaling_in(metadata, "target", result.targets, name);
  using names = std::vector<std::string>;
  result.feature_names = entry_in<names>(metadata, "features", name);
  result.class_names = entry_in<names>(metadata, "classes", name);
  result.columns = columns_in(metadata, name);
  return result;
}

std::map<std::string, std::string> metadata_of(const job_data& data) {
  std::map<std::string, std::string> result{{"data", json_of(shape_of(*data.train))}};
  const auto add = [&](const char* name, const auto& values) {
    // Names come from files and may not be valid UTF-8. Invalid bytes are replaced.
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
  if (!data.columns.categories.empty())
    add("categories", data.columns.categories);
  if (!data.columns.replacements.empty())
    add("replacements", data.columns.replacements);
  if (!data.columns.names.empty())
    add("columns", data.columns.names);
  require_room(result, data.columns);
  return result;
}

} // namespace troupe
