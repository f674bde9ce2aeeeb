#pragma once

#include "actors/model/data_builder.hpp"

#include <map>
#include <string>

namespace troupe {

/// What another program must know about the data to use the model: how features and targets were
/// shifted and scaled before the model read them, and their names. JSON texts by name:
///
///   feature_mean, feature_deviation   model input = (x - mean) / deviation; one number for each
///                                     feature, or for each channel, or one for all
///   target_mean, target_deviation     y = model output * deviation + mean
///   features, classes                 names
///
/// Each is left out if it has no effect. Pixels of uint8 are x / 255 before that.
std::map<std::string, std::string> metadata_of(const job_data& data);

/// Other data for a trained model. Its test records and its scaling become those of the training:
/// statistics of other records would give the model other numbers for the same features.
/// @param trained metadata_of() the data of the training, or nothing: then `data` stays as it is
/// @param name what errors call the model, usually the path
/// @throws input_error if the features or classes have other names, or the metadata are damaged.
job_data as_trained(job_data data, const std::map<std::string, std::string>& trained,
                    const std::string& name);

} // namespace troupe
