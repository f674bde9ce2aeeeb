#pragma once

#include "actors/model/data_builder.hpp"

#include <map>
#include <string>

namespace troupe {

/// Facts about the data that another program needs in order to use the model: how features and
/// targets were shifted and scaled, and their names. Each value is JSON text:
///
///   feature_mean, feature_deviation   model input = (x - mean) / deviation; one number for each
///                                     feature, or for each channel, or one for all
///   target_mean, target_deviation     y = model output * deviation + mean
///   features, classes                 names
///
/// An entry that has no effect is left out. Pixels of type uint8 are divided by 255 first.
std::map<std::string, std::string> metadata_of(const job_data& data);

/// Fits other data to a trained model. The test records and the scaling of `data` become those of
/// the training data: with the statistics of other records, the same features would give the model
/// other numbers.
/// @param trained metadata_of() the training data. If it is empty, `data` does not change.
/// @param name the model's name in errors, usually its path
/// @throws input_error if the features or classes have other names, or the metadata are damaged.
job_data as_trained(job_data data, const std::map<std::string, std::string>& trained,
                    const std::string& name);

} // namespace troupe
