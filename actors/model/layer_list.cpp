#include "actors/model/layer_list.hpp"

#include "actors/model/layer_fields.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <map>
#include <set>

namespace troupe {

namespace {

using google::protobuf::RepeatedPtrField;

constexpr std::size_t deepest_block = 8;
constexpr std::size_t features = 0;

bool valid_name(std::string_view name) {
  const auto valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'
      || c == '-' || c == '.' || c == '/';
  };
  return !name.empty() && name.size() <= 200 && std::ranges::all_of(name, valid);
}

/// Lists the layers of a model, and unrolls its blocks.
class lister {
public:
  explicit lister(problem_list& problems) : problems_(problems) {}

  std::vector<listed_layer> run(const proto::Model& model) {
    list(model.layer(), "", "model.layer", features);
    check_readers();
    return std::move(result_);
  }

private:
  using scope = std::map<std::string, std::size_t>;

  /// Lists the layers of a block or a model. The first layer reads `input`. Returns the output of
  /// the last layer.
  std::size_t list(const RepeatedPtrField<proto::Layer>& layers, const std::string& prefix,
                   const std::string& path, std::size_t input) {
    auto& names = scopes_.emplace_back();
    if (scopes_.size() > 1)
      names["input"] = input;
    auto previous = input;
    for (int i = 0; i < layers.size() && !stopped_; ++i) {
      const auto& layer = layers[i];
      const auto here = path + "[" + std::to_string(i) + "]";
      const auto name = layer_name(layer, i);
      const auto line = at_line(layer);
      check_name(name, here, line);
      auto inputs = inputs_of(layers, i, here, previous);
      previous = layer.has_block() ? list_block(layer, prefix + name, here, inputs[0])
                                   : add(layer, prefix + name, here, std::move(inputs));
      scopes_.back()[name] = previous;
    }
    scopes_.pop_back();
    return previous;
  }

  std::size_t add(const proto::Layer& layer, std::string name, const std::string& path,
                  std::vector<std::size_t> inputs) {
    check_layer(layer, path, problems_);
    problems_.require(names_.insert(name).second, path + ".name",
                      "\"" + name + "\" is the name of another layer; names must differ"
                        + at_line(layer));
    if (result_.size() == most_layers)
      stop(path, layer);
    result_.push_back({&layer, std::move(name), path, std::move(inputs)});
    return result_.size();
  }

  std::size_t list_block(const proto::Layer& layer, const std::string& name,
                         const std::string& path, std::size_t input) {
    const auto& block = layer.block();
    problems_.require(block.layer_size() > 0, path + ".block", "no layers" + at_line(layer));
    problems_.require(!block.has_times() || block.times() >= 1, path + ".block.times",
                      "expected at least 1" + at_line(layer));
    if (scopes_.size() > deepest_block) {
      problems_.add(path,
                    "blocks within blocks, more than " + std::to_string(deepest_block) + " deep"
                      + at_line(layer));
      return input;
    }
    auto output = input;
    const std::uint32_t times = block.has_times() ? block.times() : 1;
    for (std::uint32_t i = 0; i < times && !stopped_; ++i) {
      // Repetitions of empty blocks count too. Otherwise, unrolling them could take forever.
      if (++repetitions_ > most_layers)
        stop(path, layer);
      const auto number = block.has_times() ? "." + std::to_string(i) : "";
      output = list(block.layer(), name + number + ".", path + ".block.layer", output);
    }
    return output;
  }

  void stop(const std::string& path, const proto::Layer& layer) {
    stopped_ = true;
    problems_.add(path,
                  "more than " + std::to_string(most_layers) + " layers, repetitions counted"
                    + at_line(layer));
  }

  void check_name(const std::string& name, const std::string& path, const std::string& line) {
    problems_.require(valid_name(name), path + ".name",
                      "expected 1 to 200 letters, digits, \"_\", \"-\", \".\" or \"/\"" + line);
    problems_.require(name != "input" && name != "features", path + ".name",
                      "\"" + name + "\" already means "
                        + (name == "input" ? "what a block reads" : "the data") + "; choose another"
                        + line);
    problems_.require(!scopes_.back().contains(name), path + ".name",
                      "\"" + name + "\" is the name of another layer; names must differ" + line);
  }

  /// The inputs of layer `index`, as in listed_layer::inputs. At least one.
  std::vector<std::size_t> inputs_of(const RepeatedPtrField<proto::Layer>& layers, int index,
                                     const std::string& path, std::size_t previous) {
    const auto& layer = layers[index];
    std::vector<std::size_t> result;
    for (int i = 0; i < layer.input_size(); ++i)
      result.push_back(
        find(layers, index, layer.input(i), path + ".input[" + std::to_string(i) + "]"));
    if (result.empty())
      result.push_back(previous);
    const auto wanted = inputs_needed(layer);
    const bool enough = result.size() >= wanted.least && result.size() <= wanted.most;
    problems_.require(enough, path,
                      layer_kind(layer) + " reads " + wanted.text + ", but "
                        + (layer.input_size() == 0
                             ? "no input is named"
                             : std::to_string(layer.input_size()) + " are named")
                        + at_line(layer));
    for (auto input : result)
      read_.insert(input);
    return result;
  }

  std::size_t find(const RepeatedPtrField<proto::Layer>& layers, int index, const std::string& name,
                   const std::string& path) {
    if (name == "features")
      return features;
    for (auto names = scopes_.rbegin(); names != scopes_.rend(); ++names)
      if (const auto found = names->find(name); found != names->end())
        return found->second;
    lost_ = true;
    const auto line = at_line(layers[index]);
    for (int i = index; i < layers.size(); ++i)
      if (layer_name(layers[i], i) == name) {
        problems_.add(
          path,
          "\"" + name + "\" is "
            + (i == index ? "the layer itself" : "a layer below, which is computed later")
            + "; layers can only read those above them" + line);
        return features;
      }
    std::vector<std::string> known{"features"};
    for (const auto& names : scopes_)
      for (const auto& [other, position] : names)
        known.push_back(other);
    problems_.add(path, "no layer \"" + name + "\" above; " + suggestion(name, known) + line);
    return features;
  }

  /// Reports layers that no other layer reads. Reports nothing if the list was cut short, or if an
  /// input was not found: if the name of an input is misspelt, the intended layer only seems to be
  /// unread.
  void check_readers() {
    if (lost_ || stopped_)
      return;
    for (std::size_t i = 0; i + 1 < result_.size(); ++i)
      problems_.require(read_.contains(i + 1), result_[i].path,
                        "no layer reads \"" + result_[i].name
                          + "\"; name it as an input, or take it out" + at_line(*result_[i].layer));
  }

  problem_list& problems_;
  std::vector<listed_layer> result_;
  std::vector<scope> scopes_;
  std::set<std::string> names_;
  std::set<std::size_t> read_;
  std::size_t repetitions_ = 0;
  bool stopped_ = false;
  bool lost_ = false;
};

} // namespace

std::vector<listed_layer> list_layers(const proto::Model& model, problem_list& problems) {
  return lister{problems}.run(model);
}

std::vector<listed_layer> list_layers(const proto::Model& model) {
  problem_list problems;
  auto result = list_layers(model, problems);
  problems.throw_if_any();
  return result;
}

std::string layer_kind(const proto::Layer& layer) {
  const auto* kind = layer.GetReflection()->GetOneofFieldDescriptor(
    layer, proto::Layer::descriptor()->FindOneofByName("kind"));
  return kind != nullptr ? kind->name() : "";
}

std::string layer_name(const proto::Layer& layer, int index) {
  if (layer.has_name())
    return layer.name();
  const auto kind = layer_kind(layer);
  return (kind.empty() ? "layer" : kind) + "_" + std::to_string(index + 1);
}

std::string at_line(const proto::Layer& layer) {
  return layer.has_line() ? " (line " + std::to_string(layer.line()) + ")" : "";
}

} // namespace troupe
