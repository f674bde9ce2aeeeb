#include "actors/model/onnx/export.hpp"

#include "actors/model/onnx/exporter.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace troupe {

namespace {

constexpr std::int64_t operator_set = 17;
constexpr std::int64_t format_version = 8;

template <class T>
void set_raw(onnx::TensorProto& tensor, std::span<const T> values) {
  tensor.set_raw_data(values.data(), values.size_bytes());
}

void describe(onnx::ValueInfoProto& port, const std::string& name, const node& n) {
  port.set_name(name);
  auto& type = *port.mutable_type()->mutable_tensor_type();
  type.set_elem_type(n.type == dtype::int32 ? onnx::TensorProto::INT32 : onnx::TensorProto::FLOAT);
  for (const auto extent : n.shape.extents()) {
    auto& dim = *type.mutable_shape()->add_dim();
    if (extent == shape::batch)
      dim.set_dim_param("batch");
    else
      dim.set_dim_value(extent);
  }
}

} // namespace

exported_onnx export_onnx(expression input, expression output, std::span<const float> weights,
                          const std::string& name, const onnx_surroundings& around) {
  if (weights.size() != input.owner().parameters().size())
    throw input_error("ONNX export: got " + std::to_string(weights.size())
                      + " weights, but the model has "
                      + std::to_string(input.owner().parameters().size()) + " parameters");
  const auto model = onnx_exporter{input, output, weights}.run(name, around);
  exported_onnx result{
    .bytes = {}, .input = model.graph().input(0).name(), .output = model.graph().output(0).name()};
  if (model.ByteSizeLong() > std::numeric_limits<int>::max()
      || !model.SerializeToString(&result.bytes))
    throw input_error(
      "ONNX export: the model takes more than 2 GiB, which ONNX does not allow in one "
      "file, and this program does not write several");
  return result;
}

onnx_exporter::onnx_exporter(expression input, expression output, std::span<const float> weights)
  : graph_(input.owner()), input_(input.id()), output_(output.id()), weights_(weights) {}

void onnx_exporter::refuse(const node& n, const std::string& what) const {
  throw input_error("ONNX export: \"" + n.name + "\" (" + std::string{to_string(n.op)}
                    + "): " + what);
}

onnx::ModelProto onnx_exporter::run(const std::string& name, const onnx_surroundings& around) {
  mark_needed();
  proto_.set_name(name.empty() ? "model" : name);
  // Variables must keep their names, so they are named first.
  for (const auto& entry : graph_.parameters().entries())
    taken_.insert(entry.name);
  names_[input_] = fresh("features");
  const auto output = fresh("output");
  describe(*proto_.add_input(), names_.at(input_), at(input_));
  if (around.int64_tokens && at(input_).type == dtype::int32)
    proto_.mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
  if (around.features)
    names_[input_] = scaled_features(*around.features);
  for (const auto id : needed_)
    if (id != input_ && !absorbed_.contains(id))
      emit(id);
  add("Identity", {around.targets ? in_units(*around.targets) : value(output_)}, {}, output);
  describe(*proto_.add_output(), output, at(output_));
  onnx::ModelProto result;
  result.set_ir_version(format_version);
  result.set_producer_name("troupe");
  result.add_opset_import()->set_version(operator_set);
  *result.mutable_graph() = std::move(proto_);
  for (const auto& [key, text] : around.metadata) {
    auto& entry = *result.add_metadata_props();
    entry.set_key(key);
    entry.set_value(text);
  }
  return result;
}

// Computes (x - shift) * (1 / scale) in float32. normalized_dataset computes it in the same way.
std::string onnx_exporter::scaled_features(const feature_scaling& how) {
  const auto& dims = at(input_).shape;
  std::vector<std::int64_t> extents;
  if (how.shift.size() == dims.elements(1))
    extents.assign(dims.extents().begin() + 1, dims.extents().end());
  else if (how.shift.size() > 1) { // one per channel
    extents.assign(dims.rank() - 1, 1);
    extents[0] = static_cast<std::int64_t>(how.shift.size());
  }
  std::vector<double> factors;
  for (const auto x : how.scale)
    factors.push_back(1 / x);
  const auto shifted = add("Sub", {value(input_), numbers(how.shift, extents)});
  return add("Mul", {shifted, numbers(factors, extents)});
}

std::string onnx_exporter::in_units(const column_scaling& how) {
  const std::vector<std::int64_t> extents{static_cast<std::int64_t>(how.target_mean.size())};
  const auto scaled = add("Mul", {value(output_), numbers(how.target_scale, extents)});
  return add("Add", {scaled, numbers(how.target_mean, extents)});
}

// In the graph, a slice of an embedding stands for the embedding of a slice of the ids. If the
// features hold ids for several tables, ONNX must slice the ids: all ids together may be beyond the
// end of a table.
void onnx_exporter::find_row_parts() {
  for (std::uint32_t id = 0; id < graph_.nodes().size(); ++id) {
    const auto& n = at(id);
    if (n.op != operation::slice && n.op != operation::reshape)
      continue;
    const auto& x = at(n.inputs[0]);
    const bool whole_rows =
      x.shape.rank() > 0 && n.shape.rank() > 1 && n.shape.last() == x.shape.last();
    const auto before = row_parts_.find(n.inputs[0]);
    if (!whole_rows || (n.op == operation::slice && n.axes[0] + 1 == n.shape.rank()))
      continue;
    if (before != row_parts_.end()) {
      auto part = before->second;
      part.moves.push_back(id);
      row_parts_.emplace(id, std::move(part));
    } else if (x.op == operation::embedding) {
      row_parts_.emplace(id, row_part{x.inputs[0], x.inputs[1], {id}});
    }
  }
  std::erase_if(row_parts_, [&](const auto& part) {
    return std::ranges::none_of(part.second.moves,
                                [&](auto id) { return at(id).op == operation::slice; });
  });
}

std::vector<std::uint32_t> onnx_exporter::read_by(std::uint32_t id) const {
  if (const auto part = row_parts_.find(id); part != row_parts_.end())
    return {part->second.table, part->second.ids};
  const auto& n = at(id);
  // The exporter writes the table of a blend itself: blended()
  return n.op == operation::blend ? std::vector{n.inputs[0]}
                                  : std::vector(n.inputs.begin(), n.inputs.end());
}

void onnx_exporter::mark_needed() {
  find_row_parts();
  std::set<std::uint32_t> marked{output_};
  std::vector<std::uint32_t> open{output_};
  ++readers_[output_];
  while (!open.empty()) {
    const auto id = open.back();
    open.pop_back();
    if (id == input_)
      continue;
    for (const auto input : read_by(id)) {
      ++readers_[input];
      if (marked.insert(input).second)
        open.push_back(input);
    }
  }
  needed_.assign(marked.begin(), marked.end());
  const auto absorb = [&](std::uint32_t id) {
    if (!read_once(id) || id == output_)
      return false;
    absorbed_.insert(id);
    return true;
  };
  // Batch normalizations are absorbed first: each becomes a single ONNX node. Otherwise, the sum
  // inside them would become the bias of a convolution.
  for (const auto id : needed_)
    if (!at(id).inputs.empty() && id != input_ && batch_norm_at(at(id)) != nullptr)
      absorb_batch_norm(at(id));
  for (const auto id : needed_) {
    const auto& n = at(id);
    if (n.inputs.empty() || id == input_ || absorbed_.contains(id))
      continue;
    const auto& first = at(n.inputs[0]);
    const bool product = n.op == operation::add_bias && first.op == operation::matmul
      && at(first.inputs[0]).shape.rank() == 2;
    const bool image = n.op == operation::add_channel_bias
      && (first.op == operation::conv2d || first.op == operation::conv2d_input_gradient);
    if (product || image)
      absorb(n.inputs[0]);
    // A layer normalization is add_bias(multiply_rows(normalize_rows(x), gain), bias).
    if (n.op == operation::add_bias && first.op == operation::multiply_rows
        && at(first.inputs[0]).op == operation::normalize_rows && read_once(first.inputs[0]))
      if (absorb(n.inputs[0]))
        absorb(first.inputs[0]);
    if (is_states(n) && absorb(n.inputs[0])) {
      // ONNX's recurrent operator also multiplies the inputs by their weights and adds a bias. So
      // it absorbs the nodes that do this.
      const auto& z = at(at(n.inputs[0]).inputs[0]);
      if (absorb(at(n.inputs[0]).inputs[0]) && z.op == operation::add_bias)
        absorb(z.inputs[0]);
    }
  }
}

// -- pieces of the model ------------------------------------------------------------------------

std::string onnx_exporter::fresh(const std::string& wish) {
  auto result = wish;
  for (auto& tried = suffixes_[wish]; !taken_.insert(result).second; ++tried)
    result = wish + "_" + std::to_string(tried + 2);
  return result;
}

std::string onnx_exporter::add(std::string_view op, const std::vector<std::string>& inputs,
                               std::vector<attribute> attributes, std::string output) {
  if (output.empty())
    output = fresh(std::string{op});
  auto& node = *proto_.add_node();
  node.set_op_type(std::string{op});
  node.set_name("node_" + output);
  for (const auto& input : inputs)
    node.add_input(input);
  node.add_output(output);
  for (const auto& x : attributes) {
    auto& to = *node.add_attribute();
    to.set_name(std::string{x.name});
    switch (x.type) {
    case attribute::kind::integer:
      to.set_type(onnx::AttributeProto::INT);
      to.set_i(x.integers.at(0));
      break;
    case attribute::kind::integers:
      to.set_type(onnx::AttributeProto::INTS);
      to.mutable_ints()->Add(x.integers.begin(), x.integers.end());
      break;
    case attribute::kind::real:
      to.set_type(onnx::AttributeProto::FLOAT);
      to.set_f(static_cast<float>(x.real));
      break;
    }
  }
  return output;
}

// Adds a Constant node, not an initializer. If the model is imported, a float initializer with
// dimensions would become a parameter.
std::string onnx_exporter::numbers(const std::vector<double>& x,
                                   const std::vector<std::int64_t>& dims) {
  const auto result = add("Constant", {});
  auto& attribute = *proto_.mutable_node(proto_.node_size() - 1)->add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  auto& tensor = *attribute.mutable_t();
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  set_raw<float>(tensor, std::vector<float>(x.begin(), x.end()));
  return result;
}

std::string onnx_exporter::whole_numbers(const std::vector<std::int64_t>& x) {
  auto& tensor = *proto_.add_initializer();
  tensor.set_name(fresh("numbers"));
  tensor.add_dims(static_cast<std::int64_t>(x.size()));
  tensor.set_data_type(onnx::TensorProto::INT64);
  set_raw<std::int64_t>(tensor, x);
  return tensor.name();
}

std::string onnx_exporter::whole_number(std::int64_t x) {
  auto result = whole_numbers({x});
  proto_.mutable_initializer(proto_.initializer_size() - 1)->clear_dims();
  return result;
}

std::string onnx_exporter::shape_of(const shape& dims) {
  if (!dims.has_batch())
    return whole_numbers(dims.extents());
  if (batch_.empty())
    batch_ = add("Shape", {value(input_)}, {integer("start", 0), integer("end", 1)});
  const auto& all = dims.extents();
  if (all.size() == 1)
    return batch_;
  return add("Concat", {batch_, whole_numbers({all.begin() + 1, all.end()})}, {integer("axis", 0)});
}

std::string onnx_exporter::expanded(const std::string& x, const shape& dims) {
  return add("Expand", {x, shape_of(dims)});
}

void onnx_exporter::emit(std::uint32_t id) {
  const auto& n = at(id);
  const auto& row = onnx_export_row_of(n.op);
  if (const auto part = row_parts_.find(id); part != row_parts_.end()) {
    names_[id] = looked_up(part->second);
  } else if (!row.same.empty()) {
    std::vector<std::string> inputs;
    for (const auto input : n.inputs)
      inputs.push_back(value(input));
    names_[id] = add(row.same, inputs, {}, fresh(n.name));
  } else if (row.write != nullptr) {
    names_[id] = row.write(*this, n);
  } else {
    refuse(n, std::string{row.refusal});
  }
}

std::string onnx_exporter::stored(const node& n) {
  const auto& entry = graph_.parameters().entries()[n.index];
  auto& tensor = *proto_.add_initializer();
  tensor.set_name(entry.name);
  const auto& dims = entry.shape.extents();
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  set_raw<float>(tensor, weights_.subspan(entry.offset, entry.size));
  return entry.name;
}

} // namespace troupe
