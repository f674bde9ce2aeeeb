#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/data_shape.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Facts about the data that another program needs in order to use the model: how features and
/// targets were shifted and scaled, and their names. Each value is JSON text:
///
///   feature_mean, feature_deviation   model input = (x - mean) / deviation; one number for each
///                                     feature, or for each channel, or one for all
///   target_mean, target_deviation     y = model output * deviation + mean
///   features, classes                 names
///   categories, replacements,         column_facts
///   columns
///   data                              data_shape
///
/// Scalings and names that the data does not have get no entry. Pixels of type uint8 are divided by
/// 255 before the mean is subtracted.
/// @throws input_error if there are so many names that a file of weights cannot hold them.
std::map<std::string, std::string> metadata_of(const job_data& data);

/// The information that metadata_of() stores about the training data.
struct data_facts {
  data_shape shape;
  std::optional<feature_scaling> normalization;
  feature_scaling targets{{0}, {1}};
  std::vector<std::string> feature_names;
  std::vector<std::string> class_names;
  column_facts columns;
};

/// Reads the metadata.
/// @param name the model's name in errors, usually its path
/// @throws input_error if the metadata are damaged, or have no entry "data".
data_facts facts_in(const std::map<std::string, std::string>& metadata, const std::string& name);

/// Reads the facts about columns of a table, for build_new_data(). Empty if the metadata have none.
/// @throws input_error if they are damaged.
column_facts columns_in(const std::map<std::string, std::string>& trained, const std::string& name);

/// Adapts new data to a trained model: the test records of `data` are scaled with the statistics of
/// the training data. With their own statistics, equal features would get other numbers than in
/// training.
/// @param trained metadata_of() the training data. If it is empty, `data` does not change.
/// @param name the model's name in errors, usually its path
/// @throws input_error if the features or classes have other names, or the metadata are damaged.
job_data as_trained(job_data data, const std::map<std::string, std::string>& trained,
                    const std::string& name);

} // namespace troupe
