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

class onnx_exporter;

/// How an operation is exported. Exactly one of `same`, `write` and `refusal` is given.
struct onnx_export_row {
  operation op = operation::end;
  /// The ONNX operator that computes the same from the same operands.
  std::string_view same = {};
  /// Adds ONNX nodes, and returns the name of the result.
  std::string (*write)(onnx_exporter& to, const node& n) = nullptr;
  /// The reason why the operation cannot be exported, for an error.
  std::string_view refusal = {};
};

const onnx_export_row& onnx_export_row_of(operation op) noexcept;

/// Writes a part of a graph as an ONNX model; see export_onnx. Internal to actors/model/onnx.
class onnx_exporter {
public:
  onnx_exporter(expression input, expression output, std::span<const float> weights);
  /// Can be called only once.
  onnx::ModelProto run(const std::string& name, const onnx_surroundings& around);

private:
  /// The functions in the table of rows call the members below.
  friend struct onnx_export_rows;

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

  /// Part of the rows that an embedding looks up: the result of slices and reshapes of an embedding
  /// that keep each row whole.
  struct row_part {
    std::uint32_t table = 0;
    std::uint32_t ids = 0;
    /// The slices and reshapes, in the order of computation.
    std::vector<std::uint32_t> moves = {};
  };

  const node& at(std::uint32_t id) const { return graph_.at(id); }
  [[noreturn]] void refuse(const node& n, const std::string& what) const;
  void mark_needed();
  void find_row_parts();
  /// The nodes that the ONNX nodes of this node read.
  std::vector<std::uint32_t> read_by(std::uint32_t id) const;
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
  /// A tensor without dimensions.
  std::string whole_number(std::int64_t x);
  /// The shape as a tensor. The size of the batch is read at run time.
  std::string shape_of(const shape& dims);
  std::string expanded(const std::string& x, const shape& dims);

  // -- operations; each returns the name of its result
  void emit(std::uint32_t id);
  std::string stored(const node& n);
  std::string constant(const node& n);
  std::string truth(const std::string& x);
  std::string gelu(const node& n);
  std::string erfc(const node& n);
  std::string select(const node& n);
  std::string to_float(const node& n);
  std::string matmul(const node& n) { return product(n, ""); }
  std::string product(const node& n, const std::string& bias);
  std::string batched_product(const node& n);
  std::string biased(const node& n);
  /// A sum over these axes.
  std::string reduced(const node& n, const std::vector<std::int64_t>& axes);
  std::string normalize_rows(const node& n) { return normalized(n, "", ""); }
  std::string normalized(const node& n, const std::string& gain, const std::string& bias);
  // export_images.cpp
  std::string convolve(const node& n) { return convolution(n, ""); }
  std::string convolution(const node& n, const std::string& bias);
  std::string max_pooled(const node& n);
  std::string pooled(const node& n);
  const node* batch_norm_at(const node& n) const;
  std::string batch_normalized(const node& n);
  /// Exports a batch normalization as one ONNX node: its last node n absorbs the other nodes.
  void absorb_batch_norm(const node& n);
  /// Appends dimensions of extent 1 to a vector with one value per channel. The vector can then be
  /// combined with a tensor of this rank.
  std::string per_channel(std::uint32_t id, std::size_t rank);
  // export_attention.cpp
  std::string attention(const node& n);
  std::string causal_softmax(const node& n);
  /// Softmax of each row of (..., time, time), only up to the diagonal.
  std::string masked_softmax(const std::string& x, std::int64_t time);
  // export_movement.cpp
  std::string reshaped(const node& n) { return reshaped(value(n.inputs[0]), n.shape); }
  std::string reshaped(const std::string& x, const shape& dims);
  std::string transposed(const node& n);
  std::string joined(const node& n);
  std::string sliced(const node& n);
  std::string sliced(const std::string& x, const node& how);
  std::string looked_up(const row_part& part);
  std::string reversed(const node& n);
  std::string placed(const node& n);
  std::string blended(const node& n);
  // export_recurrent.cpp
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
  /// Nodes that are exported as a part of the node that reads them.
  std::set<std::uint32_t> absorbed_;
  std::map<std::uint32_t, row_part> row_parts_;
  std::map<std::uint32_t, std::string> names_;
  std::set<std::string> taken_;
  /// For each wished name: how many numbers fresh() has tried at its end.
  std::map<std::string, std::size_t> suffixes_;
  std::string batch_;
  /// Masks of causal attention, by the number of time steps.
  std::map<std::int64_t, std::string> masks_;
};

} // namespace troupe
