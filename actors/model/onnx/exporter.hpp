#pragma once

#include "actors/model/onnx/export.hpp"
#include "kernels/graph/graph.hpp"

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Writes a part of a graph as an ONNX model; see export_onnx. Internal to actors/model/onnx.
class onnx_exporter {
public:
  onnx_exporter(expression input, expression output, std::span<const float> weights);
  /// Can be called only once.
  onnx::ModelProto run(const std::string& name, const onnx_surroundings& around);

private:
  /// An attribute of an ONNX node.
  struct attribute {
    std::string_view name;
    std::vector<std::int64_t> integers;
    double real = 0;
    enum class kind { integer, integers, real } type = kind::integer;
  };
  static attribute integer(std::string_view name, std::int64_t x) {
    return {name, {x}, 0, attribute::kind::integer};
  }
  static attribute integers(std::string_view name, std::vector<std::int64_t> x) {
    return {name, std::move(x), 0, attribute::kind::integers};
  }
  static attribute real(std::string_view name, double x) {
    return {name, {}, x, attribute::kind::real};
  }

  const node& at(std::uint32_t id) const { return graph_.at(id); }
  [[noreturn]] void refuse(const node& n, const std::string& what) const;
  void mark_needed();
  /// True if only one exported node reads this node.
  bool read_once(std::uint32_t id) const { return readers_.at(id) == 1; }

  // -- pieces of the model
  std::string fresh(const std::string& wish);
  /// The name of a node's result.
  const std::string& value(std::uint32_t id) const { return names_.at(id); }
  std::string add(std::string_view op, const std::vector<std::string>& inputs,
                  std::vector<attribute> attributes = {}, std::string output = {});
  std::string number(double x) { return numbers({x}, {}); }
  std::string numbers(const std::vector<double>& x, const std::vector<std::int64_t>& dims);
  std::string scaled_features(const feature_scaling& how);
  std::string in_units(const column_scaling& how);
  std::string whole_numbers(const std::vector<std::int64_t>& x);
  /// The shape as a tensor. The size of the batch is read at run time.
  std::string shape_of(const shape& dims);
  std::string expanded(const std::string& x, const shape& dims);

  // -- operations; each returns the name of its result
  void emit(std::uint32_t id);
  std::string operation_of(const node& n, const std::string& wish);
  std::string constant(const node& n);
  std::string truth(const std::string& x);
  std::string product(const node& n, const std::string& bias);
  std::string batched_product(const node& n);
  std::string biased(const node& n);
  std::string reduced(const node& n);
  std::string broadcast(const node& n);
  std::string convolution(const node& n, const std::string& bias);
  std::string pooled(const node& n);
  std::string moved(const node& n);
  std::string normalized(const node& n, const std::string& gain, const std::string& bias);
  std::string causal_softmax(const node& n);
  const node* batch_norm_at(const node& n) const;
  std::string batch_normalized(const node& n);
  std::string per_channel(std::uint32_t id, std::size_t rank);
  // onnx_export_recurrent.cpp
  bool is_states(const node& n) const;
  std::string recurrent(const node& n);
  std::string gates(const std::string& x, cell how, std::int64_t hidden);

  graph& graph_;
  std::uint32_t input_;
  std::uint32_t output_;
  std::span<const float> weights_;
  onnx::GraphProto proto_;
  std::vector<std::uint32_t> needed_;
  std::map<std::uint32_t, std::size_t> readers_;
  /// Nodes that become a part of the node that reads them.
  std::set<std::uint32_t> absorbed_;
  std::map<std::uint32_t, std::string> names_;
  std::set<std::string> taken_;
  std::string batch_;
};

} // namespace troupe
