#include "apps/troupe/parameter_view.hpp"

#include "actors/output/text.hpp"
#include "apps/troupe/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace troupe {

namespace {

/// How many tensors are shown by name. All further tensors are only counted.
constexpr std::size_t most_names = 6;

/// Tensors that have something in common, such as their parameter group.
struct tensor_set {
  std::vector<std::string> names;
  std::size_t elements = 0;

  void add(const layout_entry& x) {
    names.push_back(x.name);
    elements += x.size;
  }

  /// The numbers as text, such as "1,234 parameters in 2 tensors".
  std::string counts() const {
    return counted(static_cast<double>(elements), "parameter") + " in "
      + counted(static_cast<double>(names.size()), "tensor");
  }

  std::string listed() const {
    std::string result;
    for (std::size_t i = 0; i < std::min(names.size(), most_names); ++i)
      result += (i > 0 ? ", " : "") + names[i];
    const auto more = names.size() - std::min(names.size(), most_names);
    return result + (more > 0 ? fmt::format(" and {} more", more) : "");
  }
};

std::string settings(const group_rule& x) {
  auto result = fmt::format("weight decay {:g}", x.rule.weight_decay);
  if (x.rule.l1 > 0)
    result += fmt::format(", l1 {:g}", x.rule.l1);
  if (x.rule.lazy)
    result += ", lazy";
  return x.rate_scale == 1 ? result : result + fmt::format(", learning rate x {:g}", x.rate_scale);
}

} // namespace

std::vector<std::string> frozen_lines(const job_context& context) {
  const auto& parameters = context.parameters();
  std::map<std::string, tensor_set> by_reason;
  tensor_set all;
  for (const auto& tensor : parameters.entries())
    if (tensor.kind == parameter_kind::frozen) {
      by_reason[context.model.frozen.at(tensor.name)].add(tensor);
      all.add(tensor);
    }
  if (all.names.empty())
    return {};
  std::vector<std::string> result{
    fmt::format("{} of {}", all.counts(), grouped(static_cast<double>(parameters.size())))};
  for (const auto& [why, tensors] : by_reason)
    result.push_back(tensors.listed() + ": " + why);
  const auto bytes = all.elements * sizeof(float);
  result.push_back(
    fmt::format("they take memory like others: {} in each gradient, {} of optimizer state",
                readable_bytes(bytes), readable_bytes(bytes * context.rule.slots())));
  return result;
}

std::vector<std::string> group_lines(const job_context& context) {
  const auto& groups = context.job.optimizer().group();
  if (groups.empty())
    return {};
  std::vector<tensor_set> tensors(context.groups.rules.size());
  const auto& entries = context.parameters().entries();
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].kind == parameter_kind::trainable)
      tensors[context.groups.of_tensor[i]].add(entries[i]);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool others = i + 1 == tensors.size();
    if (others && tensors[i].names.empty())
      continue;
    const auto name = others ? "others" : '"' + groups[static_cast<int>(i)].match() + '"';
    result.push_back(
      fmt::format("{}: {}, {}", name, tensors[i].counts(), settings(context.groups.rules[i])));
  }
  return result;
}

} // namespace troupe
