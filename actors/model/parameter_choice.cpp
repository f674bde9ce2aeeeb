#include "actors/model/parameter_choice.hpp"

#include "actors/model/problem_list.hpp"
#include "kernels/formats/glob.hpp"

#include <algorithm>
#include <cstddef>

namespace troupe {

parameter_choice::parameter_choice(const proto::Model& model)
  : model_(model), freezes_(static_cast<std::size_t>(model.freeze_size())),
    excepts_(static_cast<std::size_t>(model.train_size())) {}

parameter_kind parameter_choice::kind_of(const std::string& name, parameter_kind usual,
                                         const std::string& stays) {
  names_.push_back(name);
  auto why = stays;
  for (int i = model_.freeze_size(); i-- > 0;)
    if (matches_glob(model_.freeze(i), name)) {
      freezes_[static_cast<std::size_t>(i)] = true;
      why = "model.freeze \"" + model_.freeze(i) + "\"";
    }
  for (int i = 0; i < model_.train_size() && !why.empty(); ++i)
    if (matches_glob(model_.train(i), name)) {
      excepts_[static_cast<std::size_t>(i)] = true;
      why.clear();
    }
  if (!why.empty()) {
    frozen_.emplace(name, why);
    return parameter_kind::frozen;
  }
  trains_ = trains_ || usual == parameter_kind::trainable;
  return usual;
}

void parameter_choice::check() const {
  problem_list problems;
  const auto matches = [&](const std::string& pattern) {
    return std::ranges::any_of(names_, [&](auto& name) { return matches_glob(pattern, name); });
  };
  const auto nothing = [&](const std::string& pattern) {
    return "\"" + pattern + "\" matches no parameter; " + glob_suggestion(pattern, names_);
  };
  for (int i = 0; i < model_.freeze_size(); ++i)
    problems.require(freezes_[static_cast<std::size_t>(i)],
                     "model.freeze[" + std::to_string(i) + "]", nothing(model_.freeze(i)));
  for (int i = 0; i < model_.train_size(); ++i) {
    if (excepts_[static_cast<std::size_t>(i)])
      continue;
    const auto& pattern = model_.train(i);
    problems.add("model.train[" + std::to_string(i) + "]",
                 matches(pattern) ? "\"" + pattern
                     + "\" has no effect: its parameters are trained without it, or an earlier "
                       "entry covers them. Leave it out; to train nothing else, add freeze: \"*\""
                                  : nothing(pattern));
  }
  if (problems.empty() && !frozen_.empty())
    problems.require(trains_, model_.freeze_size() > 0 ? "model.freeze" : "model.onnx",
                     "no parameter is left to train; name those that train with model.train");
  problems.throw_if_any();
}

} // namespace troupe
